// Ring: reduce-scatter around the ring, then allgather around it. Lane l of L carries chunks [l*p,
// (l+1)*p); odd lanes run the other way round.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, lanes = problem.lanes;
  Builder b({.algorithm = "ring",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p * lanes});
  for (int l = 0; l < lanes; ++l) {
    auto lane = b.lane();
    if (p == 1) {
      lane.copy(in(l), out(l), {.finish = true});
      continue;
    }
    const int way = l % 2 == 0 ? 1 : -1;  // direction of travel
    const int next = (rank + way + p) % p, previous = (rank - way + p) % p;
    // The chunk that this rank handles in step s of the reduce-scatter is rank - way*s.
    const auto chunk = [&](int s) { return l * p + ((rank - way * s) % p + p) % p; };
    lane.send(in(chunk(0)), to(next));
    lane.repeat(p - 2, p, [&] { lane.step({from(previous), in(chunk(1), -way)}, {to(next)}); });
    const int mine = chunk(p - 1);
    lane.step({from(previous), in(mine)}, {out(mine), to(next, out(mine))}, {.finish = true});
    lane.repeat(p - 2, p, [&] {
      lane.step({from(previous)}, {out(chunk(p), -way), to(next, out(chunk(p), -way))});
    });
    lane.recv(from(previous), out(chunk(2 * p - 2)));
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  const std::int64_t moved = 2 * (p - 1) * problem.lanes;
  return {
      .rounds = 2 * (p - 1), .chunks_sent = moved, .chunks_received = moved, .chunks = p * problem.lanes};
}

}  // namespace

extern const Algorithm k_allreduce_ring;
const Algorithm k_allreduce_ring = {
    .name = "ring",
    .collective = Collective::allreduce,
    .source =
        "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69 "
        "(2009)",
    .cost = "2(p-1) alpha + 2 n (p-1)/p beta + n (p-1)/p gamma",
    .keeps_order = false,
    .canonical = false,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
