// Rail-optimized: one ring for each rail across the hosts; a host adds what its ranks have to what comes
// by.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"
#include "algorithms/shapes/rails.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_rails(topology, problem);
}

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return host_reduce_scatter(hierarchy(topology, problem), "rail", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return host_reduce_scatter_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_reduce_scatter_rail;
const Algorithm k_reduce_scatter_rail = {
    .name = "rail",
    .collective = Collective::reduce_scatter,
    .source = "Traff, Efficient allgather for regular SMP clusters, EuroPVM/MPI 2006, backwards",
    .cost =
        "(H-1) (alpha + n/p beta) across, n (g-1)/g beta_in inside, n gamma, at the same time; H hosts of "
        "g ranks",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uneven_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
