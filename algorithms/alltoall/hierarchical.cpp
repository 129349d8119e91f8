// Hierarchical: blocks for a position of other hosts go through the rank of that position here, one message
// a host; those for a rank of another NUMA domain through one rank of the own domain, one message a domain.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"

namespace tamaki {
namespace {

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return host_alltoall(hierarchy(topology, problem), "hierarchical", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return host_alltoall_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_alltoall_hierarchical;
const Algorithm k_alltoall_hierarchical = {
    .name = "hierarchical",
    .collective = Collective::alltoall,
    .source = "NVIDIA, Doubling all2all performance with NCCL 2.12 (PXN), 2022",
    .cost =
        "(H-1) (alpha + n/H beta) across, p/d (1-d/g) (alpha_numa + n d/p beta_numa) between domains, "
        "p (1-1/d) (alpha_in + n/p beta_in) inside; H hosts of g ranks in domains of d",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .uneven_safe = false,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
