// The tree of broadcast/kported.cpp, upwards.
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
             .collective = Collective::reduce,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root,
             .scratch_chunks = node.scratch()});
  std::vector<Builder::LaneBuilder> lanes;
  for (std::size_t i = 0; i < node.lanes.size(); ++i) lanes.push_back(b.lane());
  kported_reduce(&lanes, node, {out(0)});
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const TreeCosts tree = kported_costs(topology, problem.ranks, problem.root);
  return {.rounds = tree.up, .chunks_sent = problem.ranks > 1 ? 1 : 0, .chunks_received = tree.children};
}

}  // namespace

extern const Algorithm k_reduce_kported;
const Algorithm k_reduce_kported = {
    .name = "kported",
    .collective = Collective::reduce,
    .source =
        "Johnsson and Ho, Optimum broadcasting and personalized communication in hypercubes, IEEE Trans. "
        "Computers 38 "
        "(1989); Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8 (1997), section 1",
    .cost = "log_(k+1)(p) (alpha + n beta + k n gamma) on k ports",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
