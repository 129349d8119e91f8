// Direct: the root sends the whole message to everyone.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  Builder b(
      {.algorithm = "direct", .collective = Collective::broadcast, .ranks = p, .rank = rank, .root = root});
  auto lane = b.lane();
  if (rank != root) {
    lane.recv(from(root), out(0));
    return b.take();
  }
  std::vector<Operand> places;
  for (int i = 1; i < p; ++i) places.push_back(to(wrap(root + i, p), out(0)));
  places.push_back(out(0));
  lane.step(std::vector{in(0)}, places);
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p > 1};
}

}  // namespace

extern const Algorithm k_broadcast_direct;
const Algorithm k_broadcast_direct = {
    .name = "direct",
    .collective = Collective::broadcast,
    .source = "folklore (flat tree)",
    .cost = "(p-1) (alpha + n beta), all at the root",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
