// Swing on a torus: see shapes/swing.hpp. One stream of whole blocks, as parts of a block are not
// neighbours in memory.
#include "algorithms/shapes/swing.hpp"
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return refuse_without_grid(topology, problem);
}

SwingGrid swing_of(const Grid& grid) {
  std::vector<int> sizes;
  for (int d = 0; d < grid.dimensions(); ++d) sizes.push_back(grid.size(d));
  return SwingGrid(sizes, 0, SwingGrid::Side::plain);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "swing",
             .collective = Collective::allgather,
             .ranks = p,
             .rank = rank,
             .max_width = p > 1 ? p / 2 : 1});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0));
    return b.take();
  }
  const Grid grid(topology);
  swing_allgather(lane, swing_of(grid), grid.position_of(rank),
                  [&](int position) { return grid.rank_at(position); });
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  const Grid grid(topology);
  const SwingGrid swing = swing_of(grid);
  const bool moves = swing_moves_blocks(swing, [&](int position) { return grid.rank_at(position); });
  return {.rounds = swing.powers_of_two() ? ceil_log(problem.ranks, 2) + moves : ClosedForm::kNotStated,
          .chunks_sent = p - 1 + moves,
          .chunks_received = p - 1 + moves};
}

}  // namespace

extern const Algorithm k_allgather_swing;
const Algorithm k_allgather_swing = {
    .name = "swing",
    .collective = Collective::allgather,
    .source =
        "De Sensi, Bonato, Saam, Hoefler, Swing: short-cutting rings for higher bandwidth allreduce, NSDI "
        "2024, sections 3 and 4",
    .cost = "(log2(p) + 1) alpha + n (p-1)/p beta; more alpha if a side is no power of two",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
