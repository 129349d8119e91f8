// Ring: the partial result of block b starts at b's neighbour and travels around to b. Lane l carries part
// l of every block; odd lanes run the other way round.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, lanes = problem.lanes;
  Builder b({.algorithm = "ring",
             .collective = Collective::reduce_scatter,
             .ranks = p,
             .rank = rank,
             .chunks = lanes});
  for (int l = 0; l < lanes; ++l) {
    auto lane = b.lane();
    if (p == 1) {
      lane.copy(in(l), out(l), {.finish = true});
      continue;
    }
    const int way = l % 2 == 0 ? 1 : -1;  // direction of travel
    const int next = wrap(rank + way, p), previous = wrap(rank - way, p);
    const Operand second = in(wrap(rank - 2 * way, p) * lanes + l, -way * lanes);
    lane.send(in(previous * lanes + l), to(next));
    lane.repeat(p - 2, p * lanes, [&] { lane.step({from(previous), second}, {to(next)}); });
    lane.step({from(previous), in(rank * lanes + l)}, {out(l)}, {.finish = true});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks, moved = (p - 1) * problem.lanes;
  return {.rounds = p - 1, .chunks_sent = moved, .chunks_received = moved, .chunks = problem.lanes};
}

}  // namespace

extern const Algorithm k_reduce_scatter_ring;
const Algorithm k_reduce_scatter_ring = {
    .name = "ring",
    .collective = Collective::reduce_scatter,
    .source =
        "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69 "
        "(2009)",
    .cost = "(p-1) alpha + n (p-1)/p (beta + gamma)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
