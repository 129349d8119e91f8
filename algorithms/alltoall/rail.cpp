// PXN: blocks for a rail of other hosts go through the rank of that rail here, one message a host.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"
#include "algorithms/shapes/rails.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return refuse_without_rails(topology, problem);
}

Hierarchy hierarchy(const Topology& topology, const Problem& problem) {
  return Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return host_alltoall(hierarchy(topology, problem), "rail", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return host_alltoall_form(hierarchy(topology, problem), problem);
}

}  // namespace

extern const Algorithm k_alltoall_rail;
const Algorithm k_alltoall_rail = {
    .name = "rail",
    .collective = Collective::alltoall,
    .source = "NVIDIA, Doubling all2all performance with NCCL 2.12 (PXN), 2022",
    .cost = "(H-1) (alpha + n/H beta) across, p alpha_in + n (g-1)/g beta_in inside; H hosts of g ranks",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .uneven_safe = false,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
