// Pipelined chain: two arms reduce towards the middle rank, in rank order, and carry the result back out.
// Lane l moves its share; for an even number of ranks odd lanes meet at the other middle rank.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, pieces = problem.pieces;
  Builder b({.algorithm = "chain",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = problem.lanes * pieces});
  for (int l = 0; l < problem.lanes; ++l) {
    const int middle = l % 2 == 0 ? (p - 1) / 2 : p / 2;
    const int up = 2 * l, down = 2 * l + 1;  // channels
    const Operand piece = out(l * pieces, 1);
    std::vector<Operand> sources = {in(l * pieces, 1)}, places;
    if (rank <= middle && rank > 0) {
      sources.insert(sources.begin(), from(rank - 1, up));
      places.push_back(to(rank - 1, piece, down));
    }
    if (rank >= middle && rank < p - 1) {
      sources.push_back(from(rank + 1, up));
      // The longer arm is served first.
      places.insert(p - 1 - middle > middle ? places.begin() : places.end(), to(rank + 1, piece, down));
    }
    places.push_back(piece);
    if (rank == middle) {
      auto lane = b.lane();
      lane.repeat(pieces, 0, [&] { lane.step(sources, places, {.finish = true}); });
      continue;
    }
    const int inner = rank < middle ? rank + 1 : rank - 1;
    auto reduction = b.lane();
    reduction.repeat(pieces, 0, [&] { reduction.step(sources, std::vector{to(inner, {}, up)}); });
    auto results = b.lane();
    results.repeat(pieces, 0, [&] { results.step(std::vector{from(inner, down)}, places); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks, pieces = problem.pieces, chunks = problem.lanes * pieces;
  if (p == 1) return {.chunks = chunks};
  if (p == 2)
    return {.rounds = 1 + pieces, .chunks_sent = chunks, .chunks_received = chunks, .chunks = chunks};
  return {.rounds = p + p % 2 + 2 * (pieces - 1),
          .chunks_sent = 2 * chunks,
          .chunks_received = 2 * chunks,
          .chunks = chunks};
}

}  // namespace

extern const Algorithm k_allreduce_chain;
const Algorithm k_allreduce_chain = {
    .name = "chain",
    .collective = Collective::allreduce,
    .source = "folklore (pipelined linear trees)",
    .cost = "(p + 2 s) (alpha + n/s beta) + (p/2 + 2 s) n/s gamma, s pieces or slices",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
