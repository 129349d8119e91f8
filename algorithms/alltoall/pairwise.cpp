// Pairwise exchange: in round i ranks whose numbers sum to i modulo p exchange their blocks, or for a power
// of two of ranks those that differ by exclusive or with i. One message at a time to and from each rank.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  Builder b({.algorithm = "pairwise", .collective = Collective::alltoall, .ranks = p, .rank = rank});
  auto lane = b.lane();
  for (int i = 0; i < p; ++i) {
    const int peer = is_power_of_two(p) ? rank ^ i : wrap(i - rank, p);
    if (peer == rank) {
      lane.copy(in(rank), out(rank));
      continue;
    }
    lane.send(in(peer), to(peer, out(rank)));
    lane.recv(from(peer), out(peer));  // in place, it takes the room of the block that has just left
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  return {
      .rounds = is_power_of_two(problem.ranks) ? p - 1 : p, .chunks_sent = p - 1, .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_alltoall_pairwise;
const Algorithm k_alltoall_pairwise = {
    .name = "pairwise",
    .collective = Collective::alltoall,
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005), section 4.3",
    .cost = "p alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .pairwise_sizes = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
