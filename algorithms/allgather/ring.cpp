// Ring: every block travels once around. Lane l carries part l of every block; odd lanes run the other way
// round.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, lanes = problem.lanes;
  Builder b({.algorithm = "ring",
             .collective = Collective::allgather,
             .ranks = p,
             .rank = rank,
             .chunks = lanes});
  for (int l = 0; l < lanes; ++l) {
    auto lane = b.lane();
    if (p == 1) {
      lane.copy(in(l), out(l));
      continue;
    }
    const int way = l % 2 == 0 ? 1 : -1;  // direction of travel
    const int next = wrap(rank + way, p), previous = wrap(rank - way, p);
    const Operand own = out(rank * lanes + l), first = out(previous * lanes + l, -way * lanes);
    lane.step({in(l)}, {to(next, own), own});
    lane.repeat(p - 2, p * lanes, [&] { lane.step({from(previous)}, {to(next, first), first}); });
    lane.recv(from(previous), out(next * lanes + l));
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks, moved = (p - 1) * problem.lanes;
  return {.rounds = p - 1, .chunks_sent = moved, .chunks_received = moved, .chunks = problem.lanes};
}

}  // namespace

extern const Algorithm k_allgather_ring;
const Algorithm k_allgather_ring = {
    .name = "ring",
    .collective = Collective::allgather,
    .source = "folklore (Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.1)",
    .cost = "(p-1) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
