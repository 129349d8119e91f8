// A tree for ranks with k ports, k messages at once: see shapes/kported.hpp.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/kported.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology& topology, const Problem& problem, int rank) {
  const KportedNode node(topology, problem.ranks, problem.root, rank);
  Builder b({.algorithm = "kported",
             .collective = Collective::broadcast,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root});
  std::vector<Builder::LaneBuilder> lanes;
  for (std::size_t i = 0; i < node.lanes.size(); ++i) lanes.push_back(b.lane());
  const Operand source = node.parent < 0 ? in(0) : from(node.parent, 0);
  const StepId done = lanes[0].step(std::vector{source}, kported_places(node));
  kported_spread(&lanes, node, done);
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const TreeCosts tree = kported_costs(topology, problem.ranks, problem.root);
  return {.rounds = tree.down, .chunks_sent = tree.children, .chunks_received = problem.ranks > 1 ? 1 : 0};
}

}  // namespace

extern const Algorithm k_broadcast_kported;
const Algorithm k_broadcast_kported = {
    .name = "kported",
    .collective = Collective::broadcast,
    .source =
        "Johnsson and Ho, Optimum broadcasting and personalized communication in hypercubes, IEEE Trans. "
        "Computers 38 "
        "(1989); Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8 (1997), section 1",
    .cost = "log_(k+1)(p) (alpha + n beta) on k ports",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
