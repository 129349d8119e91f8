// The tree of broadcast/bine.cpp, upwards: a node adds up what its children send in one step.
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
             .collective = Collective::reduce,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root,
             .chunks = problem.lanes});
  for (int l = 0; l < problem.lanes; ++l) {
    std::vector<Operand> sources = {in(l)};
    for (int child : children) sources.push_back(from(child));
    auto lane = b.lane();
    lane.step(sources, std::vector{parent < 0 ? out(l) : to(parent)}, {.finish = parent < 0});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const HostTreeCosts tree = bine_tree_costs(problem.ranks, problem.root, Served::by_step).times;
  const std::int64_t lanes = problem.lanes;
  return {.rounds = tree.up,
          .chunks_sent = problem.ranks > 1 ? lanes : 0,
          .chunks_received = lanes * tree.most_children,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_reduce_bine;
const Algorithm k_reduce_bine = {
    .name = "bine",
    .collective = Collective::reduce,
    .source =
        "De Sensi et al., Bine trees: enhancing collective operations by optimizing communication "
        "locality, SC 2025 (arXiv 2508.17311)",
    .cost = "log2(p) (alpha + n beta + n gamma)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
