// Direct, one shot: everyone sends its whole input to everyone, and everyone reduces all inputs in rank
// order.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b(
      {.algorithm = "direct_one_shot", .collective = Collective::allreduce, .ranks = p, .rank = rank});
  std::vector<Operand> inputs;
  for (int i = 0; i < p; ++i) inputs.push_back(i == rank ? in(0) : from(i, 0));
  if (p == 1) {
    b.lane().copy(in(0), out(0), {.finish = true});
    return b.take();
  }
  // Sends have a lane of their own, so that they run ahead of the reduction by as many slices as the slots
  // hold.
  std::vector<Operand> peers;
  for (int i = 1; i < p; ++i) peers.push_back(to(wrap(rank + i, p), {}, 0));
  auto sends = b.lane();
  const StepId sent = sends.step(std::vector{in(0)}, peers);
  auto reduction = b.lane();
  reduction.step(inputs, std::vector{out(0)},
                 {.finish = true, .after = {&sent, 1}});  // in place, it overwrites the input
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_allreduce_direct_one_shot;
const Algorithm k_allreduce_direct_one_shot = {
    .name = "direct_one_shot",
    .collective = Collective::allreduce,
    .source = "folklore (all-to-all broadcast, then local reduction)",
    .cost = "(p-1) (alpha + n beta + n gamma)",
    .keeps_order = true,
    .canonical = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe =
        false,  // the result would overwrite an input that a slower peer has not read yet
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
