#pragma once
// Ranks in nested groups: NUMA domains in hosts in the whole, or hosts (on rails, say) in the whole.
//
// At level 0 the members are the ranks of one innermost group. At level k > 0 they are the ranks of the
// same position in each group of level k - 1 that lies in one group of level k; the smallest group says how
// many positions there are. The message is cut in as many parts as there are positions; members beyond them
// (of larger groups) give what they have and get the results, but own no part, and take no part in the
// levels above.

#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tamaki {

struct Level {
  std::vector<int> members;  // ranks; those of position 0..owners-1 own a part each
  int own = 0;               // position of this rank among them
  int owners = 1;
  bool owns() const { return own < owners; }
  bool alone() const { return members.size() == 1; }
};

/// Which ranks form which groups, for all ranks. O(ranks) to make.
class Hierarchy {
 public:
  enum class Depth {
    hosts,          // level 0: a host, level 1: across
    numa_if_known,  // level 0: a NUMA domain, level 1: a host, level 2: across
    rails,          // as hosts, with the ranks of a host in the order of their rails
  };
  /// A topology of other than `ranks` ranks counts as one host.
  Hierarchy(const Topology& topology, int ranks, Depth depth);

  int levels() const { return numa_ ? 3 : 2; }
  int hosts() const { return static_cast<int>(hosts_.size()); }
  /// Ranks of a host, all its domains one after the other.
  std::span<const int> ranks_of_host(int host) const { return ranks_of_[host]; }
  /// Ranks of each domain of a host (one domain where NUMA does not count).
  std::span<const std::vector<int>> domains_of(int host) const { return hosts_[host]; }
  int host_of(int rank) const { return place_[rank].host; }
  int domain_of(int rank) const { return place_[rank].domain; }
  /// Position of a rank in its domain.
  int index_of(int rank) const { return place_[rank].index; }
  /// Position of a rank in its host, all its domains one after the other.
  int position_of(int rank) const { return place_[rank].position; }
  /// Ranks of the smallest host.
  int least_ranks() const;
  bool even() const;  // hosts have equally many ranks

  /// Level 0, 1, ... of a rank: as many as it takes part in.
  std::vector<Level> levels_of(int rank) const;
  /// Parts in which each level cuts what it gets; their product is the number of chunks of a stream.
  std::vector<int> owners() const;

 private:
  struct Place {
    int host = 0, domain = 0, index = 0, position = 0;  // index in the domain
  };
  using Domain = std::vector<int>;          // ranks
  std::vector<std::vector<Domain>> hosts_;  // [host][domain]
  std::vector<std::vector<int>> ranks_of_;  // [host]
  std::vector<Place> place_;                // [rank]
  bool numa_ = false;
};

/// Times, in messages, of exchanges among the members of a level, each of which sends one message at a time
/// and takes in one at a time; `start`: when each can begin.
///
/// Each member sends a message to each owner, from its own position on around them; the result is when each
/// owner has taken in all of them (others: when they start).
std::vector<std::int64_t> time_to_owners(const std::vector<std::int64_t>& start, int owners);
/// Each owner sends a message to each other member, from its own position on around them.
std::vector<std::int64_t> time_from_owners(const std::vector<std::int64_t>& start, int owners);

/// The owner positions that member `own` sends to in time_to_owners(), in that order.
std::vector<int> targets_of(int own, int owners);

}  // namespace tamaki
