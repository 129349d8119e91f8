// k-nomial tree: reduction to rank 0, then broadcast from it. Each lane moves its share over the same tree.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/knomial.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "knomial",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = problem.lanes});
  const KnomialNode node = knomial_node(p, problem.radix, 0, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    // A node takes its children's parts in one step, in rank order: one pass over memory. Partial results
    // travel on channel 2l, results on 2l + 1.
    std::vector<Operand> contributions = {in(l)};
    for (const Subtree& child : node.in_rank_order()) contributions.push_back(from(child.head, 2 * l));
    std::vector<Operand> places;
    for (const Subtree& child : node.children) places.push_back(to(child.head, out(l), 2 * l + 1));
    places.push_back(out(l));
    if (node.parent < 0) {
      b.lane().step(contributions, places, {.finish = true});
      continue;
    }
    b.lane().step(contributions, std::vector{to(node.parent, {}, 2 * l)});
    b.lane().step(std::vector{from(node.parent, 2 * l + 1)}, places);
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const TreeCosts tree = knomial_costs(problem.ranks, problem.radix, 0);
  const std::int64_t lanes = problem.lanes, moved = lanes * tree.neighbours;
  return {.rounds = tree.up + tree.down, .chunks_sent = moved, .chunks_received = moved, .chunks = lanes};
}

}  // namespace

extern const Algorithm k_allreduce_knomial;
const Algorithm k_allreduce_knomial = {
    .name = "knomial",
    .collective = Collective::allreduce,
    .source =
        "folklore (binomial tree: Thakur, Rabenseifner, Gropp, Optimization of collective communication "
        "operations in MPICH, IJHPCA 19 (2005))",
    .cost = "2 (k-1) log_k(p) (alpha + n beta) + log_k(p) (k-1) n gamma",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
