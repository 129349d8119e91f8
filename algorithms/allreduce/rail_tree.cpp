// Rail-optimized: reduce-scatter inside the host, a pair of trees for each rail across the hosts, allgather
// inside: as rail.cpp, with fewer messages.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/level_exchange.hpp"
#include "algorithms/shapes/rails.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_rails(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return level_allreduce(Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails), "rail_tree", problem,
                         rank, Across::trees);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return level_allreduce_form(Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails), problem,
                              Across::trees);
}

}  // namespace

extern const Algorithm k_allreduce_rail_tree;
const Algorithm k_allreduce_rail_tree = {
    .name = "rail_tree",
    .collective = Collective::allreduce,
    .source =
        "Cho, Finkler, Serrano, Kung, Hunter, BlueConnect, MLSys 2019, section 3; trees: Sanders, Speck, "
        "Traff, "
        "Parallel Computing 35 (2009)",
    .cost =
        "2 (g-1) (alpha_in + n/g beta_in) + 4 log2(H) alpha + 2 n/g beta + n gamma, pipelined; g rails, H "
        "hosts",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
