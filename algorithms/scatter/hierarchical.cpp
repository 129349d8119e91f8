// Hierarchical: the tree of broadcast/hierarchical.cpp; a node gets the blocks of its subtree and hands its
// children theirs, consecutive ones in one message, the largest subtree first.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_tree.hpp"
#include "algorithms/shapes/tree_blocks.hpp"

namespace tamaki {
namespace {

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const HostTreeNode node = host_tree_node(hierarchy, problem.radix, problem.root, rank);
  return tree_scatter(node, "hierarchical", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const int p = problem.ranks;
  const Hierarchy hierarchy(topology, p, Hierarchy::Depth::numa_if_known);
  ClosedForm form = {.chunks_sent = p - 1};
  bool one_run = true;  // every subtree is an interval of ranks
  for (const auto& child : host_tree_node(hierarchy, problem.radix, problem.root, problem.root).children)
    form.chunks_received = std::max(form.chunks_received, std::ssize(child.ranks));
  for (int r = 0; r < p && one_run; ++r)
    one_run = r == problem.root ||
              runs_of(host_tree_node(hierarchy, problem.radix, problem.root, r).ranks).size() == 1;
  form.rounds = one_run ? host_tree_costs(hierarchy, problem.radix, problem.root, problem.root).down
                        : ClosedForm::kNotStated;
  return form;
}

}  // namespace

extern const Algorithm k_scatter_hierarchical;
const Algorithm k_scatter_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::scatter,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, Exploiting hierarchy in parallel computer "
        "networks to "
        "optimize collective operation performance, IPDPS 2000",
    .cost = "(k-1) (log_k(H) alpha + log_k(g) alpha_in) + n (p-1)/p beta, H hosts of g ranks in a row",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
