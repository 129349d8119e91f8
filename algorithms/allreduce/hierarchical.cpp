// Hierarchical: reduce-scatter inside the host (with NUMA domains: inside the domain, then between the
// domains of the host), a ring across the hosts for each position, then the allgathers. Hosts of different
// sizes: see shapes/levels.hpp.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/level_exchange.hpp"

namespace tamaki {
namespace {

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return level_allreduce(hierarchy(topology, problem), "hierarchical", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return level_allreduce_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_allreduce_hierarchical;
const Algorithm k_allreduce_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::allreduce,
    .source =
        "Cho, Finkler, Serrano, Kung, Hunter, BlueConnect: decomposing all-reduce for deep learning on "
        "heterogeneous "
        "network hierarchy, MLSys 2019; Luo et al., HAN, CLUSTER 2020",
    .cost =
        "2 (g-1) (alpha_in + n/g beta_in) + 2 (H-1) (alpha + n/(g H) beta) + n gamma, g ranks on each of H "
        "hosts",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
