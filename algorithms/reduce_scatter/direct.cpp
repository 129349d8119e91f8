// Direct: everyone sends block i of its input to rank i, which reduces all of them in rank order.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "direct", .collective = Collective::reduce_scatter, .ranks = p, .rank = rank});
  if (p > 1) {
    auto sends = b.lane(0);
    for (int i = 1; i < p; ++i) sends.send(in(wrap(rank + i, p)), to(wrap(rank + i, p)));
  }
  std::vector<Operand> contributions;
  for (int i = 0; i < p; ++i) contributions.push_back(i == rank ? in(rank) : from(i, 0));
  auto reduction = b.lane();
  reduction.step(contributions, std::vector{out(0)}, {.finish = true});
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {.rounds = p - 1, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_reduce_scatter_direct;
const Algorithm k_reduce_scatter_direct = {
    .name = "direct",
    .collective = Collective::reduce_scatter,
    .source = "folklore (one exchange, then local reduction)",
    .cost = "(p-1) alpha + n (p-1)/p (beta + gamma)",
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
