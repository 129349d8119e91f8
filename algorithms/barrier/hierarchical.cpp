// Hierarchical: the ranks of a host report to its first (through its NUMA domains), the hosts' first ranks
// run a dissemination among themselves, and each host is told.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology& topology, const Problem& problem, int rank) {
  const int radix = problem.radix;
  Builder b({.algorithm = "hierarchical",
             .collective = Collective::barrier,
             .ranks = problem.ranks,
             .rank = rank,
             .scratch_chunks = 1});
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const int host = hierarchy.host_of(rank), hosts = hierarchy.hosts(),
            first = hierarchy.ranks_of_host(host)[0];
  const HostTreeNode node = host_tree_node(hierarchy, radix, first, rank, TreeReach::within_hosts);
  auto lane = b.lane();
  std::vector<Operand> told;
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child)
    lane.recv(from(child->rank), tmp(0), {.size_of = tmp(0)});
  for (const auto& child : node.children) told.push_back(to(child.rank));
  if (rank != first) {
    lane.send(tmp(0), to(node.parent), {.size_of = tmp(0)});
    lane.recv(from(node.parent), tmp(0), {.size_of = tmp(0)});
  } else {
    for (long long distance = 1; distance < hosts; distance *= radix) {
      std::vector<Operand> telling, hearing;
      for (int d = 1; d < radix && d * distance < hosts; ++d) {
        const int by = static_cast<int>(d * distance);
        telling.push_back(to(hierarchy.ranks_of_host(wrap(host + by, hosts))[0]));
        hearing.push_back(from(hierarchy.ranks_of_host(wrap(host - by, hosts))[0]));
      }
      lane.step(std::vector{tmp(0)}, telling, {.size_of = tmp(0)});
      for (const Operand& peer : hearing) lane.recv(peer, tmp(0), {.size_of = tmp(0)});
    }
  }
  if (!told.empty()) lane.step(std::vector{tmp(0)}, told, {.size_of = tmp(0)});
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const int hosts = hierarchy.hosts(), radix = problem.radix;
  std::int64_t exchanged = 0;
  for (long long distance = 1; distance < hosts; distance *= radix)
    exchanged += std::min<long long>(radix - 1, (hosts - 1) / distance);
  ClosedForm form;
  for (int h = 0; h < hosts; ++h) {
    const int first = hierarchy.ranks_of_host(h)[0];
    const HostTreeCosts tree = host_tree_costs(hierarchy, radix, first, first, TreeReach::within_hosts);
    form.rounds = hierarchy.even() && hierarchy.levels() == 2 ? tree.up_in_order + exchanged + tree.down
                                                              : ClosedForm::kNotStated;
    for (int rank : hierarchy.ranks_of_host(h)) {
      const auto node = host_tree_node(hierarchy, radix, first, rank, TreeReach::within_hosts);
      form.chunks_sent =
          std::max(form.chunks_sent, std::ssize(node.children) + (rank == first ? exchanged : 1));
    }
  }
  form.chunks_received = form.chunks_sent;
  return form;
}

}  // namespace

extern const Algorithm k_barrier_hierarchical;
const Algorithm k_barrier_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::barrier,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, IPDPS 2000; Hensgen, Finkel and Manber, "
        "IJPP 17 (1988)",
    .cost = "(k-1) (log_k(H) alpha + 2 log_k(g) alpha_in), H hosts of g ranks",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .pairwise_sizes = true,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
