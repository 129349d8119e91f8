// PAT: see shapes/pat.hpp. Blocks lie in scratch in the order in which they arrive, so that a round is one
// message (two where the last block of a tree is left out), and go to their places at the end.
#include "algorithms/shapes/pat.hpp"
#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  const PatPlan plan(p);
  Builder b({.algorithm = "pat",
             .collective = Collective::allgather,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = p > 1 ? p : 0,
             .max_width = plan.widest});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0));
    return b.take();
  }
  lane.step({in(0)}, {tmp(0), out(rank)});
  for (const PatRound& round : plan.rounds)
    for (const PatRound::Run& run : round.runs) {
      lane.send(tmp(run.begin), to(wrap(rank + round.distance, p)),
                {.width = run.count, .size_of = out(0)});
      lane.recv(from(wrap(rank - round.distance, p)), tmp(run.arrival),
                {.width = run.count, .size_of = out(0)});
    }
  for (int i = 1; i < p; ++i) lane.copy(tmp(i), out(wrap(rank - plan.offsets[i], p)));
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  ClosedForm form = {.chunks_sent = problem.ranks - 1, .chunks_received = problem.ranks - 1};
  for (const PatRound& round : PatPlan(problem.ranks).rounds) form.rounds += std::ssize(round.runs);
  return form;
}

}  // namespace

extern const Algorithm k_allgather_pat;
const Algorithm k_allgather_pat = {
    .name = "pat",
    .collective = Collective::allgather,
    .source =
        "Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv "
        "2506.20252 (2025)",
    .cost = "log2(p) alpha + n (p-1)/p beta, and a copy of n",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uneven_safe = false,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
