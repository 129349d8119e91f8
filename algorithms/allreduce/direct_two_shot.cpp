// Direct, two shots: rank r reduces chunk r of everybody's input in rank order, and sends the result to
// everyone.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "direct_two_shot",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p});
  // Three independent streams: contributions go out, the own chunk is reduced, results come in. Channel 0
  // carries contributions, channel 1 results. Every rank starts with its next neighbour, so that no rank is
  // everybody's first.
  std::vector<Operand> contributions, places = {out(rank)};
  for (int i = 0; i < p; ++i) contributions.push_back(i == rank ? in(rank) : from(i, 0));
  for (int i = 1; i < p; ++i) places.push_back(to(wrap(rank + i, p), out(rank), 1));
  if (p > 1) {
    auto sends = b.lane(0);
    for (int i = 1; i < p; ++i) sends.send(in(wrap(rank + i, p)), to(wrap(rank + i, p)));
  }
  auto reduction = b.lane();
  reduction.step(contributions, places, {.finish = true});
  if (p > 1) {
    auto results = b.lane(1);
    for (int i = 1; i < p; ++i) results.recv(from(wrap(rank - i, p)), out(wrap(rank - i, p)));
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = 2 * (p - 1), .chunks_sent = 2 * (p - 1), .chunks_received = 2 * (p - 1), .chunks = p};
}

}  // namespace

extern const Algorithm k_allreduce_direct_two_shot;
const Algorithm k_allreduce_direct_two_shot = {
    .name = "direct_two_shot",
    .collective = Collective::allreduce,
    .source = "folklore (reduce-scatter and allgather, each in one exchange)",
    .cost = "2(p-1) alpha + 2 n (p-1)/p beta + n (p-1)/p gamma",
    .keeps_order = true,
    .canonical = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
