// Recursive multiplying, radix k: in each round groups of k ranks, whose numbers differ in one digit in
// base k, send each other all that they have, and each adds it up in one step: recursive doubling for ranks
// that can send and receive k-1 messages at a time. Ranks beyond the largest power of k give theirs to one
// before them first, and get the result from it.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Largest power of `radix` that is at most `p`.
int active_ranks(int p, int radix) {
  long long power = 1;
  while (power * radix <= p) power *= radix;
  return static_cast<int>(power);
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, radix = problem.radix, lanes = problem.lanes,
            active = active_ranks(p, radix);
  Builder b({.algorithm = "recursive_multiplying",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = lanes,
             .scratch_chunks = lanes});
  for (int l = 0; l < lanes; ++l) {
    auto lane = b.lane();
    if (rank >= active) {
      lane.send(in(l), to(rank % active));
      lane.recv(from(rank % active), out(l));
      continue;
    }
    std::vector<Operand> sources = {in(l)}, told;
    for (int extra = rank + active; extra < p; extra += active) {
      sources.push_back(from(extra));
      told.push_back(to(extra, out(l)));
    }
    // What goes out lies in scratch: it is overwritten before the others may have read it.
    const auto held = [&](bool complete) { return complete ? out(l) : tmp(l); };
    lane.step(sources, std::vector{held(active == 1)}, {.finish = active == 1, .size_of = in(l)});
    for (int distance = 1; distance < active; distance *= radix) {
      const int digit = rank / distance % radix;
      const bool complete = std::int64_t{distance} * radix == active;
      std::vector<Operand> given, taken;
      for (int d = 0; d < radix; ++d)  // by ascending rank, so that all add up in the same order
        taken.push_back(d == digit ? tmp(l) : from(rank + (d - digit) * distance));
      for (int d = 1; d < radix; ++d) given.push_back(to(rank + ((digit + d) % radix - digit) * distance));
      lane.step(std::vector{tmp(l)}, given, {.size_of = in(l)});
      lane.step(taken, std::vector{held(complete)}, {.finish = complete, .size_of = in(l)});
    }
    if (!told.empty()) lane.step(std::vector{out(l)}, told);
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks, radix = problem.radix, active = active_ranks(p, radix);
  std::int64_t exchanged = 0;
  for (int distance = 1; distance < active; distance *= radix) exchanged += radix - 1;
  const std::int64_t extra = (p - active + active - 1) / active, lanes = problem.lanes;
  const std::int64_t moved = std::max<std::int64_t>(exchanged + extra, p > active);
  return {.rounds = extra == 0 ? exchanged : ClosedForm::kNotStated,
          .chunks_sent = lanes * moved,
          .chunks_received = lanes * moved,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_allreduce_recursive_multiplying;
const Algorithm k_allreduce_recursive_multiplying = {
    .name = "recursive_multiplying",
    .collective = Collective::allreduce,
    .source =
        "Ruefenacht, Bull, Booth, Generalisation of recursive doubling for AllReduce: now with simulation, "
        "Parallel "
        "Computing 69 (2017)",
    .cost =
        "log_k(p) (alpha + n beta + (k-1) n gamma) on k-1 ports, k-1 times alpha and beta on one; 2 (alpha "
        "+ n beta) "
        "more if p is no power of k",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
