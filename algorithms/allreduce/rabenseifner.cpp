// Rabenseifner: reduce-scatter by recursive halving, then allgather by recursive doubling. In round k of
// the first part ranks at distance 2^k exchange halves of what they still hold, so that rank order is kept
// and the largest messages go to the nearest ranks. Ranks beyond the largest power of two are folded onto
// their neighbours: the two of a pair exchange halves and reduce one each. Lane l carries chunks [l*m,
// (l+1)*m).
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/fold.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  const Fold fold(p, rank);
  const int m = fold.m;
  Builder b({.algorithm = "rabenseifner",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = m * problem.lanes,
             .max_width = is_power_of_two(p) ? std::max(1, m / 2) : m});
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    const int low = l * m, high = low + m / 2;  // the two halves
    if (p == 1) {
      lane.copy(in(l), out(l), {.finish = true});
      continue;
    }
    if (!fold.active) {
      lane.send(in(low), to(fold.partner), {.width = m / 2});
      lane.step({from(fold.partner), in(high)}, {to(fold.partner, out(high))}, {.width = m / 2});
      lane.recv(from(fold.partner), out(low), {.width = m});
      continue;
    }
    bool raw = true;  // what this rank holds is still its input
    if (fold.partner >= 0) {
      lane.send(in(high), to(fold.partner), {.width = m / 2});
      lane.step({in(low), from(fold.partner)}, {out(low)}, {.width = m / 2});
      lane.recv(from(fold.partner), out(high), {.width = m / 2});
      raw = false;
    }
    const auto held = [&](int chunk) { return raw ? in(chunk) : out(chunk); };
    int begin = low, width = m;  // chunks that this rank still reduces
    for (int distance = 1; distance < m; distance *= 2) {
      const int peer = fold.rank_of(fold.index ^ distance);
      const bool upper = (fold.index & distance) != 0;
      width /= 2;
      const int given = upper ? begin : begin + width;
      if (upper) begin += width;
      lane.send(held(given), to(peer), {.width = width});
      const StepOptions options = {.width = width, .finish = width == 1};
      if (upper)
        lane.step({from(peer), held(begin)}, {out(begin)}, options);
      else
        lane.step({held(begin), from(peer)}, {out(begin)}, options);
      raw = false;
    }
    for (int distance = m / 2; distance > 0; distance /= 2) {
      const int peer = fold.rank_of(fold.index ^ distance);
      const bool upper = (fold.index & distance) != 0;
      const int other = upper ? begin - width : begin + width;
      lane.send(out(begin), to(peer, out(begin)), {.width = width});
      lane.recv(from(peer), out(other), {.width = width});
      begin = std::min(begin, other);
      width *= 2;
    }
    if (fold.partner >= 0) lane.send(out(low), to(fold.partner, out(low)), {.width = m});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  const std::int64_t m = floor_power_of_two(p), lanes = problem.lanes;
  const bool folds = !is_power_of_two(p);
  return {.rounds = 2 * ceil_log(static_cast<int>(m), 2) + 3 * folds,
          .chunks_sent = (2 * (m - 1) + folds * (m / 2 + m)) * lanes,
          .chunks_received = (2 * (m - 1) + folds * m) * lanes,
          .chunks = m * lanes};
}

}  // namespace

extern const Algorithm k_allreduce_rabenseifner;
const Algorithm k_allreduce_rabenseifner = {
    .name = "rabenseifner",
    .collective = Collective::allreduce,
    .source =
        "Rabenseifner, Optimization of collective reduction operations, ICCS 2004; Thakur, Rabenseifner, "
        "Gropp, IJHPCA 19 (2005)",
    .cost =
        "2 log2(p) alpha + 2 n (p-1)/p beta + n (p-1)/p gamma; 3 alpha + 2 n beta more if p is no power of "
        "two",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
