// PAT backwards: see shapes/pat.hpp. The input is put into scratch in the order in which an allgather's
// blocks would arrive; what came last goes back first, and is added up on the way.
#include "algorithms/shapes/pat.hpp"
#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  const PatPlan plan(p);
  Builder b({.algorithm = "pat",
             .collective = Collective::reduce_scatter,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = p > 1 ? p : 0,
             .max_width = plan.widest});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0), {.finish = true});
    return b.take();
  }
  for (int i = 0; i < p; ++i) lane.copy(in(wrap(rank - plan.offsets[i], p)), tmp(i));
  for (auto round = plan.rounds.rbegin(); round != plan.rounds.rend(); ++round)
    for (const PatRound::Run& run : round->runs) {
      const bool complete = round + 1 == plan.rounds.rend();
      lane.send(tmp(run.arrival), to(wrap(rank - round->distance, p)),
                {.width = run.count, .size_of = in(0)});
      lane.step({tmp(run.begin), from(wrap(rank + round->distance, p))},
                {complete ? out(0) : tmp(run.begin)},
                {.width = run.count, .finish = complete, .size_of = in(0)});
    }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  ClosedForm form = {.chunks_sent = problem.ranks - 1, .chunks_received = problem.ranks - 1};
  for (const PatRound& round : PatPlan(problem.ranks).rounds) form.rounds += std::ssize(round.runs);
  return form;
}

}  // namespace

extern const Algorithm k_reduce_scatter_pat;
const Algorithm k_reduce_scatter_pat = {
    .name = "pat",
    .collective = Collective::reduce_scatter,
    .source =
        "Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv "
        "2506.20252 (2025)",
    .cost = "log2(p) alpha + n (p-1)/p (beta + gamma), and a copy of n",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uneven_safe = false,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
