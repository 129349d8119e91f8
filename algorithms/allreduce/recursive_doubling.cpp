// Recursive doubling: in round k ranks at distance 2^k exchange what they have. Ranks beyond the largest
// power of two are folded onto their neighbours first and get the result from them at the end. Each lane
// moves its share.
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/fold.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "recursive_doubling",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = problem.lanes});
  const Fold fold(p, rank);
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane();
    if (!fold.active) {
      lane.send(in(l), to(fold.partner));
      lane.recv(from(fold.partner), out(l));
      continue;
    }
    // One step a round: it combines what arrives with what is here, in rank order, keeps the result (in the
    // output) and sends it to the next round's peer.
    const auto peer = [&](int distance) { return fold.rank_of(fold.index ^ distance); };
    Operand here = in(l);
    if (fold.partner >= 0) {
      std::vector<Operand> places = {out(l)};
      if (fold.m > 1) places.push_back(to(peer(1)));
      lane.step(std::vector{here, from(fold.partner)}, places, {.finish = fold.m == 1});
      here = out(l);
    } else if (fold.m > 1) {
      lane.send(here, to(peer(1)));
    } else {
      lane.copy(here, out(l), {.finish = true});
    }
    for (int distance = 1; distance < fold.m; distance *= 2) {
      const bool last = 2 * distance == fold.m;
      std::vector<Operand> sources = {here, from(peer(distance))}, places = {out(l)};
      if ((fold.index & distance) != 0) std::swap(sources[0], sources[1]);
      if (!last)
        places.push_back(to(peer(2 * distance)));
      else if (fold.partner >= 0)
        places.push_back(to(fold.partner, out(l)));
      lane.step(sources, places, {.finish = last});
      here = out(l);
    }
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  const bool folds = !is_power_of_two(p);
  const std::int64_t rounds = ceil_log(floor_power_of_two(p), 2), lanes = problem.lanes;
  return {.rounds = rounds + 2 * folds,
          .chunks_sent = (rounds + folds) * lanes,
          .chunks_received = (rounds + folds) * lanes,
          .chunks = lanes};
}

}  // namespace

extern const Algorithm k_allreduce_recursive_doubling;
const Algorithm k_allreduce_recursive_doubling = {
    .name = "recursive_doubling",
    .collective = Collective::allreduce,
    .source =
        "Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in MPICH, IJHPCA "
        "19 (2005), section 4.5",
    .cost = "log2(p) (alpha + n beta + n gamma); 2 alpha + 2 n beta more if p is no power of two",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
