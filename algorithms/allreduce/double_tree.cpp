// Double binary tree: two trees, each of them reduces its half of the message to its root and carries the
// result back; a rank is an inner node in one and a leaf in the other. Every lane is such a pair.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/double_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, pieces = problem.pieces, streams = 2 * problem.lanes;
  Builder b({.algorithm = "double_tree",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = streams * pieces});
  // Only mirrored trees keep rank order.
  const SecondTree second = problem.commutative ? best_second_tree(p) : SecondTree::mirrored;
  for (int s = 0; s < streams; ++s) {
    const BinaryNode node = double_tree_node(p, s % 2, second, rank + 1);
    const int up = 2 * s, down = 2 * s + 1;  // channels
    const Operand piece = out(s * pieces, 1);
    std::vector<Operand> sources = {in(s * pieces, 1)}, places;
    if (node.left != 0) {
      sources.insert(sources.begin(), from(node.left - 1, up));
      places.push_back(to(node.left - 1, piece, down));
    }
    if (node.right != 0) {
      sources.push_back(from(node.right - 1, up));
      places.push_back(to(node.right - 1, piece, down));
    }
    places.push_back(piece);
    if (node.parent == 0) {
      auto lane = b.lane();
      lane.repeat(pieces, 0, [&] { lane.step(sources, places, {.finish = true}); });
      continue;
    }
    auto reduction = b.lane();
    reduction.repeat(pieces, 0, [&] { reduction.step(sources, std::vector{to(node.parent - 1, {}, up)}); });
    auto results = b.lane();
    results.repeat(pieces, 0, [&] { results.step(std::vector{from(node.parent - 1, down)}, places); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const SecondTree second = problem.commutative ? best_second_tree(problem.ranks) : SecondTree::mirrored;
  const DoubleTreeCosts trees = double_tree_costs(problem.ranks, second, problem.pieces);
  const std::int64_t share = std::int64_t{problem.lanes} * problem.pieces;
  return {.rounds = trees.up_and_down,
          .chunks_sent = share * trees.most_neighbours,
          .chunks_received = share * trees.most_neighbours,
          .chunks = 2 * share};
}

}  // namespace

extern const Algorithm k_allreduce_double_tree;
const Algorithm k_allreduce_double_tree = {
    .name = "double_tree",
    .collective = Collective::allreduce,
    .source =
        "Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
        "Parallel Computing 35 (2009)",
    .cost = "4 log2(p) alpha + 2 n beta + n gamma, pipelined",
    .keeps_order = true,
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
