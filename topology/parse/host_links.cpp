// What hwloc's and NCCL's descriptions leave open: which NIC serves which GPU, and what joins NUMA domains.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "topology/parse/hwloc.hpp"

namespace tamaki {
namespace {

/// Links to cross from `from` to every part it reaches.
std::map<Part, int> distances(const std::multimap<Part, Part>& joined, Part from) {
  std::map<Part, int> found = {{from, 0}};
  std::deque<Part> open = {from};
  while (!open.empty()) {
    const Part at = open.front();
    open.pop_front();
    for (auto [i, end] = joined.equal_range(at); i != end; ++i)
      if (found.emplace(i->second, found[at] + 1).second) open.push_back(i->second);
  }
  return found;
}

}  // namespace

void pair_nics_with_gpus(HostKind* kind) {
  std::multimap<Part, Part> joined;
  for (const PartLink& link : kind->links) {
    // Over NVLink every GPU is near every other one; it says nothing of NICs.
    if (link.kind == PartLink::Kind::nvlink) continue;
    joined.emplace(link.a, link.b);
    joined.emplace(link.b, link.a);
  }
  std::vector<int> load(kind->gpus.size());
  for (const Nic& nic : kind->nics)
    if (nic.gpu >= 0) ++load[static_cast<std::size_t>(nic.gpu)];
  for (std::size_t n = 0; n < kind->nics.size(); ++n) {
    Nic& nic = kind->nics[n];
    if (nic.rail < 0) nic.rail = static_cast<std::int32_t>(n);
    if (nic.gpu >= 0 || kind->gpus.empty()) continue;
    const auto found = distances(joined, {Part::Kind::nic, static_cast<std::int32_t>(n)});
    std::tuple<int, int, std::size_t> best = {1 << 30, 0, kind->gpus.size()};
    for (std::size_t g = 0; g < kind->gpus.size(); ++g)
      if (const auto at = found.find({Part::Kind::gpu, static_cast<std::int32_t>(g)}); at != found.end())
        best = std::min(best, {at->second, load[g], g});
    if (std::get<2>(best) == kind->gpus.size()) continue;  // no way to any GPU is known
    nic.gpu = static_cast<std::int32_t>(std::get<2>(best));
    ++load[std::get<2>(best)];
  }
}

bool join_numa_domains(HostKind* kind) {
  constexpr std::size_t kMostMeshed = 16;
  const std::size_t domains = kind->numa.size();
  for (const PartLink& link : kind->links)
    if (link.a.kind == Part::Kind::numa && link.b.kind == Part::Kind::numa) return false;
  if (domains < 2) return false;
  for (std::size_t a = 0; a < domains; ++a)
    for (std::size_t b = a + 1; b < domains; ++b) {
      const bool near = b == a + 1 || (a == 0 && b + 1 == domains);
      if (domains > kMostMeshed && !near) continue;  // a ring
      const bool one_socket = kind->numa[a].socket == kind->numa[b].socket;
      kind->links.push_back({{Part::Kind::numa, static_cast<std::int32_t>(a)},
                             {Part::Kind::numa, static_cast<std::int32_t>(b)},
                             one_socket ? 100e9 : 40e9,
                             0,
                             PartLink::Kind::processor});
    }
  return true;
}

}  // namespace tamaki
