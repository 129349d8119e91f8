#pragma once
// Where the ranks of a communicator are, as a value: what an algorithm may depend on.

#include <cstdint>
#include <vector>

namespace tamaki {

struct Topology {
  /// Host number of each rank, numbered from 0 in order of first appearance.
  std::vector<std::int32_t> host_of_rank;
  bool operator==(const Topology&) const = default;

  int ranks() const { return static_cast<int>(host_of_rank.size()); }
  bool one_host() const {
    for (auto host : host_of_rank)
      if (host != 0) return false;
    return true;
  }
  static Topology flat(int ranks) { return {std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0)}; }
};

}  // namespace tamaki
