#pragma once
// What algorithms on rails need to hold.

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tamaki {

/// Empty where every host has the same rails, with one rank on each; else the reason why rails cannot be
/// used.
inline std::string refuse_without_rails(const Topology& topology, const Problem& problem) {
  const int p = problem.ranks;
  if (topology.ranks() != p || static_cast<int>(topology.rail_of_rank.size()) != p)
    return "needs to know the rail of each of the " + std::to_string(p) + " ranks, and none is known";
  std::vector<std::vector<int>> rails;  // of each host
  for (int r = 0; r < p; ++r) {
    const auto host = static_cast<std::size_t>(topology.host_of_rank[r]);
    if (host >= rails.size()) rails.resize(host + 1);
    rails[host].push_back(topology.rail_of_rank[r]);
  }
  for (std::size_t h = 0; h < rails.size(); ++h) {
    std::sort(rails[h].begin(), rails[h].end());
    if (std::adjacent_find(rails[h].begin(), rails[h].end()) != rails[h].end())
      return "needs one rank on each rail, and host " + std::to_string(h) + " has two on rail " +
             std::to_string(*std::adjacent_find(rails[h].begin(), rails[h].end()));
    if (rails[h] != rails[0])
      return "needs the same rails on all hosts, and those of host " + std::to_string(h) + " (" +
             std::to_string(rails[h].size()) + ") differ from those of host 0 (" +
             std::to_string(rails[0].size()) + ")";
  }
  return {};
}

}  // namespace tamaki
