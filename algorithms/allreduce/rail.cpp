// Rail-optimized: reduce-scatter inside the host, one ring for each rail across the hosts, allgather
// inside, so that no message leaves its rail's switches.
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
  return level_allreduce(Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails), "rail", problem,
                         rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return level_allreduce_form(Hierarchy(topology, problem.ranks, Hierarchy::Depth::rails), problem);
}

}  // namespace

extern const Algorithm k_allreduce_rail;
const Algorithm k_allreduce_rail = {
    .name = "rail",
    .collective = Collective::allreduce,
    .source =
        "Cho, Finkler, Serrano, Kung, Hunter, BlueConnect, MLSys 2019, section 3, on rail-optimized "
        "fabrics",
    .cost = "2 (g-1) (alpha_in + n/g beta_in) + 2 (H-1) (alpha + n/(g H) beta) + n gamma, g rails, H hosts",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
