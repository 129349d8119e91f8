// k-nomial tree. Each lane moves its share over the same tree.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/knomial.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// This node's input and its children's parts, in rank order: one step, one pass over memory.
std::vector<Operand> contributions(const KnomialNode& node, int rank, int lane) {
  std::vector<Operand> sources;
  for (const Subtree& child : node.in_rank_order())
    if (child.head < rank) sources.push_back(from(child.head, lane));
  sources.push_back(in(lane));
  for (const Subtree& child : node.in_rank_order())
    if (child.head > rank) sources.push_back(from(child.head, lane));
  return sources;
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  Builder b({.algorithm = "knomial",
             .collective = Collective::reduce,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes});
  const KnomialNode node = knomial_node(p, problem.radix, root, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    if (rank == root)
      lane.step(contributions(node, rank, l), std::vector{out(l)}, {.finish = true});
    else
      lane.step(contributions(node, rank, l), std::vector{to(node.parent)});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const TreeCosts tree = knomial_costs(problem.ranks, problem.radix, problem.root);
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.up,
          .chunks_sent = problem.ranks > 1 ? lanes : 0,
          .chunks_received = lanes * tree.children,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_reduce_knomial;
const Algorithm k_reduce_knomial = {
    .name = "knomial",
    .collective = Collective::reduce,
    .source = "folklore (binomial tree: Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.5)",
    .cost = "(k-1) log_k(p) (alpha + n beta + n gamma)",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
