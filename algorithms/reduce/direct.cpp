// Direct: everyone sends its whole input to the root, which reduces all of them in rank order.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  Builder b(
      {.algorithm = "direct", .collective = Collective::reduce, .ranks = p, .rank = rank, .root = root});
  auto lane = b.lane();
  if (rank != root) {
    lane.send(in(0), to(root));
    return b.take();
  }
  std::vector<Operand> inputs;
  for (int i = 0; i < p; ++i) inputs.push_back(i == root ? in(0) : from(i));
  lane.step(inputs, std::vector{out(0)}, {.finish = true});
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p > 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_reduce_direct;
const Algorithm k_reduce_direct = {
    .name = "direct",
    .collective = Collective::reduce,
    .source = "folklore (flat tree)",
    .cost = "(p-1) (alpha + n beta + n gamma), all at the root",
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
