// A ring allreduce on each of several rings through all points of a torus that share no link, in both
// directions: see shapes/hamiltonian.hpp. Stream s carries chunks [s*p, (s+1)*p), numbered by the points'
// order in its ring.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/hamiltonian.hpp"
#include "algorithms/shapes/ring_stage.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_hamiltonian_rings(topology, problem);
}

/// Rings in both directions, but no more than the rank has ports. Two ranks have one link.
int streams_of(const Grid& grid, const HamiltonianRings& found) {
  const int ways = grid.points() > 2 ? 2 : 1;
  return std::min(grid.ports(), ways * static_cast<int>(found.rings.size()));
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const auto found = hamiltonian_rings(grid);
  const int p = problem.ranks, here = grid.position_of(rank), streams = streams_of(grid, *found);
  Builder b({.algorithm = "hamiltonian",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p * streams});
  for (int s = 0; s < streams; ++s) {
    auto lane = b.lane();
    if (p == 1) {
      lane.copy(in(0), out(0), {.finish = true});
      continue;
    }
    const std::vector<int>& points = found->rings[s / 2];
    const int own = found->index[s / 2][here], way = s % 2 == 0 ? 1 : -1;
    const RingStage ring = {.size = p,
                            .own = own,
                            .way = way,
                            .next = grid.rank_at(points[wrap(own + way, p)]),
                            .previous = grid.rank_at(points[wrap(own - way, p)]),
                            .begin = s * p};
    ring_reduce_scatter(lane, ring, HeldIn::input, Finish::yes);
    ring_allgather(lane, ring);
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const std::int64_t p = problem.ranks, streams = streams_of(grid, *hamiltonian_rings(grid));
  return {.rounds = 2 * (p - 1),
          .chunks_sent = 2 * (p - 1) * streams,
          .chunks_received = 2 * (p - 1) * streams,
          .chunks = p * streams};
}

}  // namespace

extern const Algorithm k_allreduce_hamiltonian;
const Algorithm k_allreduce_hamiltonian = {
    .name = "hamiltonian",
    .collective = Collective::allreduce,
    .source =
        "Hoefler et al., HammingMesh: a network topology for large-scale deep learning, SC 2022, section "
        "IV; Bae and "
        "Bose, Edge disjoint Hamiltonian cycles in k-ary n-cubes and hypercubes, IEEE Trans. Computers 52 "
        "(2003)",
    .cost =
        "2 (p-1) alpha + 2 n (p-1)/(p k) beta + n (p-1)/p gamma on k <= 2D ports of a torus of D "
        "dimensions",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
