// k-nomial tree. Each lane moves its share over the same tree.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/knomial.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  Builder b({.algorithm = "knomial",
             .collective = Collective::broadcast,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes});
  const KnomialNode node = knomial_node(p, problem.radix, root, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    std::vector<Operand> places;
    for (const Subtree& child : node.children) places.push_back(to(child.head, out(l)));
    places.push_back(out(l));
    auto lane = b.lane();
    lane.step(std::vector{rank == root ? in(l) : from(node.parent)}, places);
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const TreeCosts tree = knomial_costs(problem.ranks, problem.radix, problem.root);
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.down,
          .chunks_sent = lanes * tree.children,
          .chunks_received = problem.ranks > 1 ? lanes : 0,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_broadcast_knomial;
const Algorithm k_broadcast_knomial = {
    .name = "knomial",
    .collective = Collective::broadcast,
    .source = "folklore (binomial tree: Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.2)",
    .cost = "(k-1) log_k(p) (alpha + n beta)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
