#include "algorithms/shapes/levels.hpp"

#include <algorithm>

namespace tamaki {

Hierarchy::Hierarchy(const Topology& topology, int ranks, Depth depth) {
  const bool known = topology.ranks() == ranks;
  const auto per_rank = [&](const std::vector<std::int32_t>& values, int rank) {
    return static_cast<int>(values.size()) == ranks ? values[rank] : 0;
  };
  place_.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Place& place = place_[r];
    place.host = known ? topology.host_of_rank[r] : 0;
    place.domain = known && depth == Depth::numa_if_known ? per_rank(topology.numa_of_rank, r) : 0;
    if (place.host >= hosts()) hosts_.resize(static_cast<std::size_t>(place.host) + 1);
    auto& domains = hosts_[place.host];
    if (place.domain >= static_cast<int>(domains.size()))
      domains.resize(static_cast<std::size_t>(place.domain) + 1);
    domains[place.domain].push_back(r);
  }
  // Numbers of domains that have no rank of this communicator are skipped.
  for (auto& domains : hosts_)
    domains.erase(std::remove_if(domains.begin(), domains.end(), [](const Domain& d) { return d.empty(); }),
                  domains.end());
  if (depth == Depth::rails)
    for (auto& domains : hosts_)
      for (Domain& domain : domains)
        std::stable_sort(domain.begin(), domain.end(), [&](int a, int b) {
          return per_rank(topology.rail_of_rank, a) < per_rank(topology.rail_of_rank, b);
        });
  ranks_of_.resize(hosts_.size());
  for (int h = 0; h < hosts(); ++h) {
    numa_ = numa_ || hosts_[h].size() > 1;
    for (int d = 0; d < static_cast<int>(hosts_[h].size()); ++d)
      for (int i = 0; i < static_cast<int>(hosts_[h][d].size()); ++i) {
        const int rank = hosts_[h][d][i];
        place_[rank] = {h, d, i, static_cast<int>(ranks_of_[h].size())};
        ranks_of_[h].push_back(rank);
      }
  }
}

int Hierarchy::least_ranks() const {
  std::size_t least = ranks_of_[0].size();
  for (const auto& ranks : ranks_of_) least = std::min(least, ranks.size());
  return static_cast<int>(least);
}

bool Hierarchy::even() const {
  return std::all_of(ranks_of_.begin(), ranks_of_.end(),
                     [&](const auto& ranks) { return ranks.size() == ranks_of_[0].size(); });
}

std::vector<int> Hierarchy::owners() const {
  std::size_t positions = place_.size(), domains = place_.size();
  for (const auto& host : hosts_) {
    domains = std::min(domains, host.size());
    for (const Domain& domain : host) positions = std::min(positions, domain.size());
  }
  std::vector<int> owners = {static_cast<int>(positions)};
  if (numa_) owners.push_back(static_cast<int>(domains));
  owners.push_back(hosts());
  return owners;
}

std::vector<Level> Hierarchy::levels_of(int rank) const {
  const std::vector<int> owners_at = owners();
  const Place& place = place_[rank];
  std::vector<Level> levels = {{hosts_[place.host][place.domain], place.index, owners_at[0]}};
  if (!levels[0].owns()) return levels;
  if (numa_) {
    Level level{{}, place.domain, owners_at[1]};
    for (const Domain& domain : hosts_[place.host]) level.members.push_back(domain[place.index]);
    levels.push_back(std::move(level));
    if (!levels[1].owns()) return levels;
  }
  Level across{{}, place.host, hosts()};
  for (const auto& host : hosts_) across.members.push_back(host[place.domain][place.index]);
  levels.push_back(std::move(across));
  return levels;
}

std::vector<int> targets_of(int own, int owners) {
  std::vector<int> targets;
  for (int k = 0; k < owners; ++k)
    if (const int target = (own + k) % owners; target != own) targets.push_back(target);
  return targets;
}

std::vector<std::int64_t> time_to_owners(const std::vector<std::int64_t>& start, int owners) {
  std::vector<std::vector<std::int64_t>> arrivals(static_cast<std::size_t>(owners));
  for (int m = 0; m < static_cast<int>(start.size()); ++m) {
    std::int64_t at = start[m];
    for (int target : targets_of(m, owners)) arrivals[target].push_back(++at);
  }
  std::vector<std::int64_t> done = start;
  for (int o = 0; o < owners; ++o) {
    std::sort(arrivals[o].begin(), arrivals[o].end());
    std::int64_t free = 0;
    for (std::int64_t arrival : arrivals[o]) free = std::max(free + 1, arrival);
    done[o] = std::max(done[o], free);
  }
  return done;
}

std::vector<std::int64_t> time_from_owners(const std::vector<std::int64_t>& start, int owners) {
  const int members = static_cast<int>(start.size());
  std::vector<std::int64_t> done = start;
  for (int m = 0; m < members; ++m) {
    std::int64_t free = 0;
    // From the owner just before it on backwards: the order in which their messages to it leave.
    for (int k = 1; k < members; ++k) {
      const int owner = (m - k + members) % members;
      if (owner >= owners) continue;
      free = std::max(free + 1, start[owner] + k);
      done[m] = std::max(done[m], free);
    }
  }
  return done;
}

}  // namespace tamaki
