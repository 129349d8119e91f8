// Dissemination: in round j every rank tells the k-1 ranks at distances d*k^j that it has come so far, and
// waits to be told the same.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, radix = problem.radix;
  Builder b({.algorithm = "dissemination",
             .collective = Collective::barrier,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = 1});
  auto lane = b.lane();
  for (long long distance = 1; distance < p; distance *= radix) {
    std::vector<Operand> told, telling;
    for (int d = 1; d < radix && d * distance < p; ++d) {
      const int by = static_cast<int>(d * distance);
      told.push_back(to(wrap(rank + by, p)));
      telling.push_back(from(wrap(rank - by, p)));
    }
    lane.step(std::vector{tmp(0)}, told, {.size_of = tmp(0)});
    for (const Operand& peer : telling) lane.recv(peer, tmp(0), {.size_of = tmp(0)});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  ClosedForm form;
  for (long long distance = 1; distance < problem.ranks; distance *= problem.radix)
    form.rounds += std::min<long long>(problem.radix - 1, (problem.ranks - 1) / distance);
  form.chunks_sent = form.chunks_received = form.rounds;
  return form;
}

}  // namespace

extern const Algorithm k_barrier_dissemination;
const Algorithm k_barrier_dissemination = {
    .name = "dissemination",
    .collective = Collective::barrier,
    .source =
        "Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, IJPP 17 (1988); radix k: "
        "folklore",
    .cost = "(k-1) log_k(p) alpha",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .pairwise_sizes = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
