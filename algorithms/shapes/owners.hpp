#pragma once
// A rank's view of the owners of its host: see host_blocks.hpp.

#include <algorithm>
#include <span>
#include <vector>

#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/levels.hpp"

namespace tamaki {

/// A rank's view of owners.
class Owners {
 public:
  Owners(const Hierarchy& hierarchy, int rank)
      : h_(hierarchy),
        owners(hierarchy.least_ranks()),
        hosts(hierarchy.hosts()),
        host(hierarchy.host_of(rank)),
        position(hierarchy.position_of(rank)),
        own(position % owners),
        local(hierarchy.ranks_of_host(host)) {}

 private:
  const Hierarchy& h_;

 public:
  const int owners, hosts, host, position, own;
  const std::span<const int> local;  // ranks of the host

  bool owns() const { return position < owners; }
  int owner(int of_host, int i) const { return h_.ranks_of_host(wrap(of_host, hosts))[i]; }
  /// Ranks that owner i of a host speaks for, itself first.
  std::vector<int> served(int of_host, int i) const {
    std::vector<int> ranks;
    const auto all = h_.ranks_of_host(wrap(of_host, hosts));
    for (int k = i; k < static_cast<int>(all.size()); k += owners) ranks.push_back(all[k]);
    return ranks;
  }
  std::span<const int> ranks_of(int of_host) const { return h_.ranks_of_host(wrap(of_host, hosts)); }
  /// Calls body(rank, its position) for the other ranks of the host, from the one after this on.
  template <class Body>
  void each_other(const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = 1; k < size; ++k) body(local[(position + k) % size], (position + k) % size);
  }
  /// The same backwards: in the order in which their messages to this rank leave.
  template <class Body>
  void each_sender(const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = size - 1; k > 0; --k) body(local[(position + k) % size], (position + k) % size);
  }
  /// The rank of a domain of this host that what owner i has for the domain (or gets from it) passes
  /// through.
  int relay(int i, int domain) const {
    const std::vector<int>& ranks = h_.domains_of(host)[domain];
    return ranks[static_cast<std::size_t>(i) % ranks.size()];
  }
  /// The rank that rank `of` of this host exchanges owner i's blocks with: the owner itself, where it is of
  /// the same domain or `of` is the relay, else the relay.
  int towards(int i, int of) const {
    const int domain = h_.domain_of(of), through = relay(i, domain);
    return h_.domain_of(local[i]) == domain || through == of ? local[i] : through;
  }
  /// Whether rank `of` is the relay of its domain for owner i of another domain of this host.
  bool relays(int i, int of) const {
    const int domain = h_.domain_of(of);
    return h_.domain_of(local[i]) != domain && relay(i, domain) == of;
  }
  /// Calls body(rank) for the ranks that owner i exchanges with itself, from the one after it on.
  template <class Body>
  void each_near(int i, const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = 1; k < size; ++k)
      if (const int other = local[(i + k) % size]; towards(i, other) == local[i]) body(other);
  }
  /// Calls body(rank) for the other ranks of a rank's domain.
  template <class Body>
  void each_mate(int of, const Body& body) const {
    const std::vector<int>& ranks = h_.domains_of(host)[h_.domain_of(of)];
    const int size = static_cast<int>(ranks.size()), index = h_.index_of(of);
    for (int k = 1; k < size; ++k) body(ranks[(index + k) % size]);
  }
  /// Most blocks that an owner speaks for.
  int most_served() const {
    std::size_t most = 0;
    for (int h = 0; h < hosts; ++h) most = std::max(most, ranks_of(h).size());
    return static_cast<int>((most + static_cast<std::size_t>(owners) - 1) /
                            static_cast<std::size_t>(owners));
  }
  /// The block that owner i of a host speaks for as its `k`-th, or -1.
  int served_at(int of_host, int i, int k) const {
    const auto all = ranks_of(of_host);
    const std::size_t at =
        static_cast<std::size_t>(i) + static_cast<std::size_t>(k) * static_cast<std::size_t>(owners);
    return at < all.size() ? all[at] : -1;
  }
};

// Channels; kRelayed + i: of owner i. In alltoall: kRelayed to the relays, kFromRelays from them.
inline constexpr int kAcross = 0, kForOthers = 1, kRelayed = 2, kFromRelays = 3;

}  // namespace tamaki
