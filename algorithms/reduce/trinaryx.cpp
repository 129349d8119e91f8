// The trees of broadcast/trinaryx.cpp, upwards: a node adds up what its children send in one step.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus_trees.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_torus_trees(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const int pieces = problem.pieces, root = problem.root;
  const TorusTrees trees(topology, root);
  Builder b({.algorithm = "trinaryx",
             .collective = Collective::reduce,
             .ranks = problem.ranks,
             .rank = rank,
             .root = root,
             .chunks = trees.count() * pieces});
  for (int t = 0; t < trees.count(); ++t) {
    const int parent = trees.parent(t, rank);
    std::vector<Operand> sources = {in(t * pieces, 1)};
    for (int child : trees.children(t, rank)) sources.push_back(from(child));
    auto lane = b.lane();
    const Operand result = parent < 0 ? out(t * pieces, 1) : to(parent);
    lane.repeat(pieces, 0, [&] { lane.step(sources, std::vector{result}, {.finish = parent < 0}); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const TorusTreesCosts trees = torus_trees_costs(topology, problem.ranks, problem.root);
  const std::int64_t pieces = problem.pieces, count = TorusTrees(topology, problem.root).count();
  const std::int64_t one = problem.ranks > 1 ? count * pieces : 0;
  return {.rounds = pieces == 1 ? trees.up : ClosedForm::kNotStated,
          .chunks_sent = one,
          .chunks_received = pieces * trees.most_children,
          .chunks = count * pieces};
}

}  // namespace

extern const Algorithm k_reduce_trinaryx;
const Algorithm k_reduce_trinaryx = {
    .name = "trinaryx",
    .collective = Collective::reduce,
    .source =
        "Fujitsu's Trinaryx3 (Adachi, Shida, Miura, Sumimoto, Uno, Kurokawa, Shoji, Yokokawa, The design "
        "of ultra scalable "
        "MPI collective communication on the K computer, ISC 2012); trees of our own",
    .cost = "depth alpha + n/3 beta + n gamma, pipelined; the depth is about sum(a_i)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
