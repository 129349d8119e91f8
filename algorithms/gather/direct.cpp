// Direct: everyone sends its block to the root.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  Builder b(
      {.algorithm = "direct", .collective = Collective::gather, .ranks = p, .rank = rank, .root = root});
  auto lane = b.lane();
  if (rank != root) {
    lane.send(in(0), to(root, out(rank)));
    return b.take();
  }
  lane.copy(in(0), out(root));
  for (int i = 1; i < p; ++i) lane.recv(from(wrap(root + i, p)), out(wrap(root + i, p)));
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p > 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_gather_direct;
const Algorithm k_gather_direct = {
    .name = "direct",
    .collective = Collective::gather,
    .source = "folklore (flat tree)",
    .cost = "(p-1) alpha + n (p-1)/p beta, all at the root",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .pairwise_sizes = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
