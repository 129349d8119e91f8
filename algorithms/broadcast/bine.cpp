// Bine tree: see shapes/bine_tree.hpp. Each lane moves its share over the same tree.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/bine_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const BineTree tree(problem.ranks, problem.root);
  const int parent = tree.parent(rank);
  const std::vector<int> children = tree.children(rank);
  Builder b({.algorithm = "bine",
             .collective = Collective::broadcast,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root,
             .chunks = problem.lanes});
  for (int l = 0; l < problem.lanes; ++l) {
    std::vector<Operand> places;
    for (int child : children) places.push_back(to(child, out(l)));
    places.push_back(out(l));
    auto lane = b.lane();
    lane.step(std::vector{parent < 0 ? in(l) : from(parent)}, places);
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const HostTreeCosts tree = bine_tree_costs(problem.ranks, problem.root, Served::by_step).times;
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.down,
          .chunks_sent = lanes * tree.most_children,
          .chunks_received = problem.ranks > 1 ? lanes : 0,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_broadcast_bine;
const Algorithm k_broadcast_bine = {
    .name = "bine",
    .collective = Collective::broadcast,
    .source =
        "De Sensi et al., Bine trees: enhancing collective operations by optimizing communication "
        "locality, SC 2025 (arXiv 2508.17311)",
    .cost = "log2(p) (alpha + n beta)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
