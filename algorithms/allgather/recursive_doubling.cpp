// Recursive doubling: in round k ranks at distance 2^k exchange the 2^k blocks they have.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return is_power_of_two(problem.ranks)
             ? ""
             : "needs a power of two of ranks, has " + std::to_string(problem.ranks);
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "recursive_doubling",
             .collective = Collective::allgather,
             .ranks = p,
             .rank = rank,
             .max_width = std::max(1, p / 2)});
  auto lane = b.lane();
  if (p == 1) {
    lane.copy(in(0), out(0));
    return b.take();
  }
  lane.step({in(0)}, {to(rank ^ 1, out(rank)), out(rank)});
  for (int width = 1; width < p; width *= 2) {
    const int peer = rank ^ width, begin = rank & -width;  // blocks [begin, begin + width) are here
    if (width > 1) lane.send(out(begin), to(peer, out(begin)), {.width = width});
    lane.recv(from(peer), out(begin ^ width), {.width = width});
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  return {.rounds = ceil_log(p, 2), .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_allgather_recursive_doubling;
const Algorithm k_allgather_recursive_doubling = {
    .name = "recursive_doubling",
    .collective = Collective::allgather,
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.1",
    .cost = "log2(p) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
