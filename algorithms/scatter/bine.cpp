// The tree of broadcast/bine.cpp: see shapes/bine_tree.hpp and shapes/tree_blocks.hpp.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/bine_tree.hpp"
#include "algorithms/shapes/tree_blocks.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  return tree_scatter(BineTree(problem.ranks, problem.root).node(rank), "bine", problem, rank);
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const BineTreeCosts tree = bine_tree_costs(problem.ranks, problem.root, Served::by_size);
  return {.rounds = tree.one_run ? tree.times.down : ClosedForm::kNotStated,
          .chunks_sent = std::int64_t{problem.ranks} - 1,
          .chunks_received = tree.widest};
}

}  // namespace

extern const Algorithm k_scatter_bine;
const Algorithm k_scatter_bine = {
    .name = "bine",
    .collective = Collective::scatter,
    .source =
        "De Sensi et al., Bine trees: enhancing collective operations by optimizing communication "
        "locality, SC 2025 (arXiv 2508.17311)",
    .cost = "log2(p) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
