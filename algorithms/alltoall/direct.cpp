// Direct: everyone sends block i of its input to rank i.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "direct", .collective = Collective::alltoall, .ranks = p, .rank = rank});
  std::vector<StepId> sent(static_cast<std::size_t>(p));
  auto sends = b.lane(0);
  for (int i = 1; i < p; ++i) {
    const int peer = wrap(rank + i, p);
    sent[peer] = sends.send(in(peer), to(peer, out(rank)));
  }
  sends.copy(in(rank), out(rank));
  if (p == 1) return b.take();
  auto receives = b.lane(0);
  for (int i = 1; i < p; ++i) {
    const int peer = wrap(rank - i, p);
    // In place, the block that arrives takes the room of the one that leaves.
    receives.recv(from(peer), out(peer), {.after = {&sent[peer], 1}});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_alltoall_direct;
const Algorithm k_alltoall_direct = {
    .name = "direct",
    .collective = Collective::alltoall,
    .source = "folklore (linear exchange)",
    .cost = "(p-1) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .pairwise_sizes = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
