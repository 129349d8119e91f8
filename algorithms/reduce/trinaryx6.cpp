// The trees of broadcast/trinaryx6.cpp, upwards: a node adds up what its children send in one step.
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus_trees.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_torus_trees(topology, problem, TreeLinks::all);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  return torus_trees_reduce(TorusTrees(topology, problem.root, TreeLinks::all), "trinaryx6", problem, rank);
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  return torus_trees_form(TorusTrees(topology, problem.root, TreeLinks::all), problem);
}

}  // namespace

extern const Algorithm k_reduce_trinaryx6;
const Algorithm k_reduce_trinaryx6 = {
    .name = "trinaryx6",
    .collective = Collective::reduce,
    .source =
        "Fujitsu's Trinaryx3 and 6 (Adachi, Shida, Miura, Sumimoto, Uno, Kurokawa, Shoji, Yokokawa, The "
        "design of ultra scalable "
        "MPI collective communication on the K computer, ISC 2012); trees of our own",
    .cost = "sum(a_i) alpha + n/(2D) beta + n gamma, pipelined, on 2D ports of a torus of D dimensions",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
