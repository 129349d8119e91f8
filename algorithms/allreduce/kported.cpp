// The tree of broadcast/kported.cpp, upwards to rank 0 and back down.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/kported.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology& topology, const Problem& problem, int rank) {
  const KportedNode node(topology, problem.ranks, 0, rank);
  Builder b({.algorithm = "kported",
             .collective = Collective::allreduce,
             .ranks = problem.ranks,
             .rank = rank,
             .scratch_chunks = node.scratch()});
  std::vector<Builder::LaneBuilder> lanes;
  for (std::size_t i = 0; i < node.lanes.size(); ++i) lanes.push_back(b.lane());
  kported_reduce(&lanes, node, kported_places(node));
  StepId done{};  // the one step of lane 0 at the root
  if (node.parent >= 0) done = lanes[0].step(std::vector{from(node.parent, 0)}, kported_places(node));
  kported_spread(&lanes, node, done);
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const TreeCosts tree = kported_costs(topology, problem.ranks, 0);
  return {
      .rounds = tree.up + tree.down, .chunks_sent = tree.neighbours, .chunks_received = tree.neighbours};
}

}  // namespace

extern const Algorithm k_allreduce_kported;
const Algorithm k_allreduce_kported = {
    .name = "kported",
    .collective = Collective::allreduce,
    .source =
        "Johnsson and Ho, Optimum broadcasting and personalized communication in hypercubes, IEEE Trans. "
        "Computers 38 "
        "(1989); Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8 (1997), section 1",
    .cost = "2 log_(k+1)(p) (alpha + n beta) + k log_(k+1)(p) n gamma on k ports",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
