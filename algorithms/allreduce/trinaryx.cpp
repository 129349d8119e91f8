// The trees of broadcast/trinaryx.cpp, upwards to rank 0 and back down, piece by piece.
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
  const int pieces = problem.pieces;
  const TorusTrees trees(topology, 0);
  Builder b({.algorithm = "trinaryx",
             .collective = Collective::allreduce,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = trees.count() * pieces});
  for (int t = 0; t < trees.count(); ++t) {
    const int parent = trees.parent(t, rank);
    const int up = 2 * t, down = 2 * t + 1;  // channels
    const Operand piece = out(t * pieces, 1);
    std::vector<Operand> sources = {in(t * pieces, 1)}, places;
    for (int child : trees.children(t, rank)) {
      sources.push_back(from(child, up));
      places.push_back(to(child, piece, down));
    }
    places.push_back(piece);
    if (parent < 0) {
      auto lane = b.lane();
      lane.repeat(pieces, 0, [&] { lane.step(sources, places, {.finish = true}); });
      continue;
    }
    auto reduction = b.lane();
    reduction.repeat(pieces, 0, [&] { reduction.step(sources, std::vector{to(parent, {}, up)}); });
    auto results = b.lane();
    results.repeat(pieces, 0, [&] { results.step(std::vector{from(parent, down)}, places); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const TorusTreesCosts trees = torus_trees_costs(topology, problem.ranks, 0);
  const std::int64_t pieces = problem.pieces, count = TorusTrees(topology, 0).count();
  return {.rounds = pieces == 1 ? trees.up_and_down : ClosedForm::kNotStated,
          .chunks_sent = pieces * trees.most_neighbours,
          .chunks_received = pieces * trees.most_neighbours,
          .chunks = count * pieces};
}

}  // namespace

extern const Algorithm k_allreduce_trinaryx;
const Algorithm k_allreduce_trinaryx = {
    .name = "trinaryx",
    .collective = Collective::allreduce,
    .source =
        "Fujitsu's Trinaryx3 (Adachi, Shida, Miura, Sumimoto, Uno, Kurokawa, Shoji, Yokokawa, The design "
        "of ultra scalable "
        "MPI collective communication on the K computer, ISC 2012); trees of our own",
    .cost = "2 depth alpha + 2 n/3 beta + n gamma, pipelined; the depth is about sum(a_i)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
