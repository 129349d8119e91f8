// Bine butterfly over the ranks in their order, distances doubling: Swing on one ring (see
// shapes/swing.hpp), which needs no torus. Neighbouring ranks exchange most: where they share hosts or
// switches, little crosses between.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/swing.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "bine",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p,
             .max_width = p > 1 ? p / 2 : 1});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0), {.finish = true});
    return b.take();
  }
  swing_allreduce(lane, SwingGrid({p}, 0, SwingGrid::Side::plain), rank, 0,
                  [](int position) { return position; });
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {
      .rounds = is_power_of_two(problem.ranks) ? 2 * ceil_log(problem.ranks, 2) : ClosedForm::kNotStated,
      .chunks_sent = 2 * (p - 1),
      .chunks_received = 2 * (p - 1),
      .chunks = p};
}

}  // namespace

extern const Algorithm k_allreduce_bine;
const Algorithm k_allreduce_bine = {
    .name = "bine",
    .collective = Collective::allreduce,
    .source =
        "De Sensi et al., Bine trees: enhancing collective operations by optimizing communication "
        "locality, SC 2025 "
        "(arXiv 2508.17311)",
    .cost = "2 log2(p) alpha + 2 n (p-1)/p beta + n gamma; more alpha if p is no power of two",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
