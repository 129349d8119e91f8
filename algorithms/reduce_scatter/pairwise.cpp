// Pairwise exchange: in round i rank r sends block r+i to its owner and adds what rank r-i sends to its own
// block. One message at a time to and from each rank: gentler to the network than sending all at once.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "pairwise", .collective = Collective::reduce_scatter, .ranks = p, .rank = rank});
  auto lane = b.lane();
  if (p == 1) lane.copy(in(0), out(0), {.finish = true});
  for (int i = 1; i < p; ++i) {
    lane.send(in(wrap(rank + i, p)), to(wrap(rank + i, p)));
    lane.step({i == 1 ? in(rank) : out(0), from(wrap(rank - i, p))}, {out(0)}, {.finish = i == p - 1});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_reduce_scatter_pairwise;
const Algorithm k_reduce_scatter_pairwise = {
    .name = "pairwise",
    .collective = Collective::reduce_scatter,
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.4",
    .cost = "(p-1) alpha + n (p-1)/p (beta + gamma)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
