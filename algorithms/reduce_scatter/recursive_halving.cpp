// Recursive halving: in each round ranks at half the distance of the round before exchange the half of the
// blocks that the other one's side needs.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return is_power_of_two(problem.ranks)
             ? ""
             : "needs a power of two of ranks, has " + std::to_string(problem.ranks);
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "recursive_halving",
             .collective = Collective::reduce_scatter,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = p > 2 ? p / 2 : 0,
             .max_width = std::max(1, p / 2)});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0), {.finish = true});
    return b.take();
  }
  const int kept = rank & -(p / 2);  // first block of the half that the first round leaves here: tmp(0)
  for (int width = p / 2; width > 0; width /= 2) {
    const int peer = rank ^ width, mine = rank & -width, theirs = mine ^ width;
    const auto held = [&](int block) { return width == p / 2 ? in(block) : tmp(block - kept); };
    lane.send(held(theirs), to(peer), {.width = width, .size_of = in(theirs)});
    lane.step({held(mine), from(peer)}, {width == 1 ? out(0) : tmp(mine - kept)},
              {.width = width, .finish = width == 1, .size_of = in(mine)});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  return {.rounds = ceil_log(p, 2), .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_reduce_scatter_recursive_halving;
const Algorithm k_reduce_scatter_recursive_halving = {
    .name = "recursive_halving",
    .collective = Collective::reduce_scatter,
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.4",
    .cost = "log2(p) alpha + n (p-1)/p (beta + gamma)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
