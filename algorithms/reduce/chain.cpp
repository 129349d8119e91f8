// Pipelined chain: each rank adds its part to what comes from one neighbour and hands it to the other. Lane
// l moves its share; odd lanes run the other way round. An operation that does not commute needs two arms
// that meet at the root.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root, pieces = problem.pieces;
  Builder b({.algorithm = "chain",
             .collective = Collective::reduce,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = problem.lanes * pieces});
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    std::vector<Operand> sources = {in(l * pieces, 1)};
    int next = -1;
    if (problem.commutative) {
      const int way = l % 2 == 0 ? 1 : -1;
      next = wrap(rank + way, p);
      if (wrap(rank - way, p) != root) sources.push_back(from(wrap(rank - way, p)));
    } else {
      next = rank < root ? rank + 1 : rank - 1;
      if (rank <= root && rank > 0) sources.insert(sources.begin(), from(rank - 1));
      if (rank >= root && rank < p - 1) sources.push_back(from(rank + 1));
    }
    const bool last = rank == root;
    lane.repeat(pieces, 0, [&] {
      lane.step(sources, std::vector{last ? out(l * pieces, 1) : to(next)}, {.finish = last});
    });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks, pieces = problem.pieces, chunks = problem.lanes * pieces;
  if (p == 1) return {.chunks = chunks};
  const std::int64_t low = problem.root, high = p - 1 - problem.root;  // lengths of the two arms
  if (problem.commutative || low == 0 || high == 0)
    return {.rounds = p - 2 + pieces, .chunks_sent = chunks, .chunks_received = chunks, .chunks = chunks};
  return {.rounds = std::max(low, high) + (low == high) + 2 * (pieces - 1),
          .chunks_sent = chunks,
          .chunks_received = 2 * chunks,
          .chunks = chunks};
}

}  // namespace

extern const Algorithm k_reduce_chain;
const Algorithm k_reduce_chain = {
    .name = "chain",
    .collective = Collective::reduce,
    .source = "folklore (pipelined linear tree)",
    .cost = "(p-2+s) (alpha + n/s beta + n/s gamma), s pieces or slices",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
