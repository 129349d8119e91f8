#pragma once
// Where each rank of a job is on a machine.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

/// One rank's place. Indices are those of the host's HostKind; -1 where it is not known or there is none.
struct Place {
  std::int32_t host = 0;
  std::int32_t slot = 0;  // position among the ranks of its host
  std::int32_t numa = -1;
  std::int32_t gpu = -1;
  std::int32_t nic = -1;  // the NIC that it uses first
  auto operator<=>(const Place&) const = default;
};

/// Rank -> place.
struct Placement {
  std::vector<Place> ranks = {};
  bool operator==(const Placement&) const = default;

  std::int32_t size() const { return static_cast<std::int32_t>(ranks.size()); }
};

/// How consecutive ranks are laid over hosts.
enum class RankOrder : std::uint8_t {
  by_slot,                  // fill a host, then the next
  by_host,                  // one rank a host, round and round
  first_dimension_fastest,  // fill a host, then the next along X, then Y, then Z: Fujitsu MPI's own order
                            // on a torus
};

/// `ranks` ranks on the machine's hosts in host order; each host takes its slots. Slot s of a host with as
/// many GPUs as slots has GPU s and the NIC that serves it; without GPUs, slots are spread evenly over NUMA
/// domains, in order. Error: more ranks than slots.
Result<Placement> place(const Machine& machine, std::int32_t ranks, RankOrder order = RankOrder::by_slot);
/// All slots, by_slot.
Placement place_all(const Machine& machine);
/// The place of slot `slot` of host `host` (any slot >= 0; beyond the host's slots it wraps round).
Place place_of_slot(const Machine& machine, std::int32_t host, std::int32_t slot);
/// The same places in an order of chance: of all orders with equal probability (Fisher-Yates), the same for a
/// seed on every machine. What a scheduler that knows no network may hand out.
Placement shuffled(Placement placement, std::uint64_t seed);
/// Rank i of a sub-communicator is rank members[i] of `whole`.
Placement restrict_to(const Placement& whole, const std::vector<std::int32_t>& members);

}  // namespace tamaki
