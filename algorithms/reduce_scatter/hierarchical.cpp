// Hierarchical: one ring across the hosts for each position; a host adds what its ranks have to what comes
// by, what those of a NUMA domain have as one sum.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"

namespace tamaki {
namespace {

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return host_reduce_scatter(hierarchy(topology, problem), "hierarchical", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return host_reduce_scatter_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_reduce_scatter_hierarchical;
const Algorithm k_reduce_scatter_hierarchical = {
    .name = "hierarchical",
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
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
