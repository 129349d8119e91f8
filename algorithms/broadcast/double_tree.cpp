// Double binary tree over the ranks other than the root, which feeds both trees: each carries half of the
// message, and a rank is an inner node in one and a leaf in the other. Every lane is such a pair.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/double_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root, pieces = problem.pieces, streams = 2 * problem.lanes;
  Builder b({.algorithm = "double_tree",
             .collective = Collective::broadcast,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = streams * pieces});
  const auto rank_at = [&](int place) { return wrap(root + place, p); };  // places 1..p-1 follow the root
  for (int s = 0; s < streams; ++s) {
    const Operand piece = out(s * pieces, 1);
    std::vector<Operand> places;
    Operand source = in(s * pieces, 1);
    if (rank == root) {
      if (p > 1)
        places.push_back(to(rank_at(double_tree_root(p - 1, s % 2, best_second_tree(p - 1))), piece));
    } else {
      const BinaryNode node = double_tree_node(p - 1, s % 2, best_second_tree(p - 1), wrap(rank - root, p));
      source = from(node.parent == 0 ? root : rank_at(node.parent));
      if (node.left != 0) places.push_back(to(rank_at(node.left), piece));
      if (node.right != 0) places.push_back(to(rank_at(node.right), piece));
    }
    places.push_back(piece);
    auto lane = b.lane();
    lane.repeat(pieces, 0, [&] { lane.step(std::vector{source}, places); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t share = std::int64_t{problem.lanes} * problem.pieces;
  if (problem.ranks == 1) return {.chunks = 2 * share};
  const DoubleTreeCosts trees =
      double_tree_costs(problem.ranks - 1, best_second_tree(problem.ranks - 1), problem.pieces);
  return {.rounds = 1 + trees.down,
          .chunks_sent = share * std::max(2, trees.most_children),
          .chunks_received = 2 * share,
          .chunks = 2 * share};
}

}  // namespace

extern const Algorithm k_broadcast_double_tree;
const Algorithm k_broadcast_double_tree = {
    .name = "double_tree",
    .collective = Collective::broadcast,
    .source =
        "Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
        "Parallel Computing 35 (2009)",
    .cost = "2 log2(p) alpha + n beta, pipelined",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
