// Hierarchical: the tree of broadcast/hierarchical.cpp, upwards; a node adds up what its children send in
// one step.
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
             .collective = Collective::reduce,
             .ranks = problem.ranks,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes});
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const HostTreeNode node = host_tree_node(hierarchy, problem.radix, root, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    std::vector<Operand> sources = {in(l)};
    for (const auto& child : node.children) sources.push_back(from(child.rank));
    if (rank == root)
      lane.step(sources, std::vector{out(l)}, {.finish = true});
    else
      lane.step(sources, std::vector{to(node.parent)});
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const HostTreeCosts tree = host_tree_costs(hierarchy, problem.radix, problem.root, problem.root);
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.up,
          .chunks_sent = problem.ranks > 1 ? lanes : 0,
          .chunks_received = lanes * tree.most_children,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_reduce_hierarchical;
const Algorithm k_reduce_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::reduce,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, Exploiting hierarchy in parallel computer "
        "networks to "
        "optimize collective operation performance, IPDPS 2000",
    .cost = "(k-1) (log_k(H) (alpha + n beta + n gamma) + log_k(g) (alpha_in + n beta_in + n gamma))",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
