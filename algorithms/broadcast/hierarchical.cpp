// Hierarchical: a tree over hosts, over the NUMA domains of each host and over the ranks of each domain.
// Each lane moves its share over the same tree; slices follow each other through it.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology& topology, const Problem& problem, int rank) {
  const int root = problem.root;
  Builder b({.algorithm = "hierarchical",
             .collective = Collective::broadcast,
             .ranks = problem.ranks,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes});
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const HostTreeNode node = host_tree_node(hierarchy, problem.radix, root, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    std::vector<Operand> places;
    for (const auto& child : node.children) places.push_back(to(child.rank, out(l)));
    places.push_back(out(l));
    auto lane = b.lane();
    lane.step(std::vector{rank == root ? in(l) : from(node.parent)}, places);
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const HostTreeCosts tree = host_tree_costs(hierarchy, problem.radix, problem.root, problem.root);
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.down,
          .chunks_sent = lanes * tree.most_children,
          .chunks_received = problem.ranks > 1 ? lanes : 0,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_broadcast_hierarchical;
const Algorithm k_broadcast_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::broadcast,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, Exploiting hierarchy in parallel computer "
        "networks to "
        "optimize collective operation performance, IPDPS 2000",
    .cost = "(k-1) (log_k(H) (alpha + n beta) + log_k(g) (alpha_in + n beta_in)), H hosts of g ranks",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
