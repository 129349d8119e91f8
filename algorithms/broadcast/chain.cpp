// Pipelined chain: each rank hands every piece on to its neighbour. Lane l moves its share; odd lanes run
// the other way round.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root, pieces = problem.pieces;
  Builder b({.algorithm = "chain",
             .collective = Collective::broadcast,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes * pieces});
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    const int way = l % 2 == 0 ? 1 : -1;
    const int next = wrap(rank + way, p), previous = wrap(rank - way, p);
    const Operand piece = out(l * pieces, 1);
    const Operand source = rank == root ? in(l * pieces, 1) : from(previous);
    lane.repeat(pieces, 0, [&] {
      if (next == root)
        lane.step({source}, {piece});
      else
        lane.step({source}, {to(next, piece), piece});
    });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks, chunks = problem.lanes * problem.pieces;
  if (p == 1) return {.chunks = chunks};
  return {
      .rounds = p - 2 + problem.pieces, .chunks_sent = chunks, .chunks_received = chunks, .chunks = chunks};
}

}  // namespace

extern const Algorithm k_broadcast_chain;
const Algorithm k_broadcast_chain = {
    .name = "chain",
    .collective = Collective::broadcast,
    .source = "folklore (pipelined linear tree)",
    .cost = "(p-2+s) (alpha + n/s beta), s pieces or slices",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
