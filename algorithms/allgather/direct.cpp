// Direct: everyone sends its block to everyone.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "direct", .collective = Collective::allgather, .ranks = p, .rank = rank});
  std::vector<Operand> places;
  for (int i = 1; i < p; ++i) places.push_back(to(wrap(rank + i, p), out(rank), 0));
  places.push_back(out(rank));
  auto sends = b.lane();
  sends.step(std::vector{in(0)}, places);
  if (p == 1) return b.take();
  auto receives = b.lane(0);
  for (int i = 1; i < p; ++i) receives.recv(from(wrap(rank - i, p)), out(wrap(rank - i, p)));
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_allgather_direct;
const Algorithm k_allgather_direct = {
    .name = "direct",
    .collective = Collective::allgather,
    .source = "folklore (one exchange)",
    .cost = "(p-1) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
