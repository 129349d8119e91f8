// Hierarchical: one ring across the hosts for each position; what comes by is handed to the ranks of the
// host, once to each of its NUMA domains.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"

namespace tamaki {
namespace {

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return host_allgather(hierarchy(topology, problem), "hierarchical", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return host_allgather_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_allgather_hierarchical;
const Algorithm k_allgather_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::allgather,
    .source = "Traff, Efficient allgather for regular SMP clusters, EuroPVM/MPI 2006",
    .cost =
        "(H-1) (alpha + n/p beta) across, n (p-1)/p beta_in inside, at the same time; H hosts of g ranks",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uneven_safe = true,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
