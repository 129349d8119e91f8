#include "topology/placement/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tamaki {

Place place_of_slot(const Machine& machine, std::int32_t host, std::int32_t slot) {
  const HostKind& kind = machine.host(host);
  Place place;
  place.host = host;
  place.slot = slot % kind.slots;
  const auto gpus = static_cast<std::int32_t>(kind.gpus.size());
  const auto nics = static_cast<std::int32_t>(kind.nics.size());
  const auto domains = static_cast<std::int32_t>(kind.numa.size());
  if (gpus > 0 && kind.slots <= gpus) {
    place.gpu = place.slot;
    place.numa = kind.gpus[static_cast<std::size_t>(place.gpu)].numa;
    for (std::int32_t n = nics; n-- > 0;)
      if (kind.nics[static_cast<std::size_t>(n)].gpu == place.gpu) place.nic = n;
    if (place.nic < 0 && nics > 0) place.nic = place.slot % nics;
    return place;
  }
  place.numa = static_cast<std::int32_t>(static_cast<std::int64_t>(place.slot) * domains / kind.slots);
  if (nics == 0) return place;
  // The NICs near the domain, in turn; all of them where none is.
  std::vector<std::int32_t> near;
  for (std::int32_t n = 0; n < nics; ++n)
    if (kind.nics[static_cast<std::size_t>(n)].numa == place.numa) near.push_back(n);
  const auto all = static_cast<std::int32_t>(near.size());
  place.nic = near.empty() ? place.slot % nics : near[static_cast<std::size_t>(place.slot % all)];
  return place;
}

Placement place_all(const Machine& machine) {
  Placement placement;
  placement.ranks.reserve(static_cast<std::size_t>(machine.slots()));
  for (std::int32_t h = 0; h < machine.hosts; ++h)
    for (std::int32_t s = 0; s < machine.host(h).slots; ++s)
      placement.ranks.push_back(place_of_slot(machine, h, s));
  return placement;
}

Result<Placement> place(const Machine& machine, std::int32_t ranks, RankOrder order) {
  if (ranks < 1 || ranks > machine.slots())
    return fail(Code::invalid_argument,
                fmt::format("{} ranks on {}: it has {} slots", ranks, machine.name, machine.slots()));
  Placement placement;
  placement.ranks.reserve(static_cast<std::size_t>(ranks));
  const auto full = [&] { return placement.size() == ranks; };
  if (order == RankOrder::by_slot) {
    for (std::int32_t h = 0; h < machine.hosts; ++h)
      for (std::int32_t s = 0; s < machine.host(h).slots; ++s) {
        placement.ranks.push_back(place_of_slot(machine, h, s));
        if (full()) return placement;
      }
  } else if (order == RankOrder::by_host) {
    for (std::int32_t s = 0;; ++s)
      for (std::int32_t h = 0; h < machine.hosts; ++h) {
        if (s >= machine.host(h).slots) continue;
        placement.ranks.push_back(place_of_slot(machine, h, s));
        if (full()) return placement;
      }
  } else {
    const Torus* torus = machine.torus();
    if (torus == nullptr)
      return fail(Code::invalid_argument,
                  fmt::format("ranks along the first dimension of {}: it is no torus", machine.name));
    std::vector<TorusAxis> dimensions = torus->dimensions();
    std::vector<std::int32_t> at(dimensions.size(), 0);
    for (std::int32_t n = 0; n < machine.hosts; ++n) {
      const auto host = static_cast<std::int32_t>(torus->host_of_logical(at));
      for (std::int32_t s = 0; s < machine.host(host).slots; ++s) {
        placement.ranks.push_back(place_of_slot(machine, host, s));
        if (full()) return placement;
      }
      for (std::size_t d = 0; d < at.size() && ++at[d] == dimensions[d].size; ++d) at[d] = 0;
    }
  }
  return placement;
}

Placement shuffled(Placement placement, std::uint64_t seed) {
  // splitmix64; the library's own shuffles and distributions differ between standard libraries.
  std::uint64_t state = seed;
  const auto below = [&](std::uint64_t bound) {
    const std::uint64_t most = UINT64_MAX - UINT64_MAX % bound;  // without the favour of a remainder
    for (;;) {
      state += 0x9e3779b97f4a7c15U;
      std::uint64_t x = state;
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
      x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
      x ^= x >> 31;
      if (x < most) return x % bound;
    }
  };
  for (std::size_t i = placement.ranks.size(); i > 1; --i)
    std::swap(placement.ranks[i - 1], placement.ranks[below(i)]);
  return placement;
}

Placement restrict_to(const Placement& whole, const std::vector<std::int32_t>& members) {
  Placement part;
  part.ranks.reserve(members.size());
  for (const std::int32_t rank : members) part.ranks.push_back(whole.ranks[static_cast<std::size_t>(rank)]);
  return part;
}

}  // namespace tamaki
