// Bine butterfly over the ranks in their order, allgather/bine.cpp backwards: Swing on one ring (see
// shapes/swing.hpp), which needs no torus.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/swing.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "bine",
             .collective = Collective::reduce_scatter,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = p > 1 ? p : 0,
             .max_width = p > 1 ? p / 2 : 1});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0), {.finish = true});
    return b.take();
  }
  swing_reduce_scatter(lane, SwingGrid({p}, 0, SwingGrid::Side::plain), rank,
                       [](int position) { return position; });
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  const SwingGrid swing({problem.ranks}, 0, SwingGrid::Side::plain);
  const bool moves = swing_moves_blocks(swing, [](int position) { return position; });
  return {.rounds = swing.powers_of_two() ? ceil_log(problem.ranks, 2) + moves : ClosedForm::kNotStated,
          .chunks_sent = p - 1 + moves,
          .chunks_received = p - 1 + moves};
}

}  // namespace

extern const Algorithm k_reduce_scatter_bine;
const Algorithm k_reduce_scatter_bine = {
    .name = "bine",
    .collective = Collective::reduce_scatter,
    .source =
        "De Sensi et al., Bine trees: enhancing collective operations by optimizing communication "
        "locality, SC 2025 (arXiv 2508.17311)",
    .cost = "(log2(p) + 1) alpha + n (p-1)/p beta + n gamma; more alpha if p is no power of two",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
