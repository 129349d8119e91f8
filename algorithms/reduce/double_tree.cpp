// Double binary tree over the ranks other than the root, which takes in the results of both trees: each
// reduces half of the message, and a rank is an inner node in one and a leaf in the other. Every lane is
// such a pair.
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
             .collective = Collective::reduce,
             .ranks = p,
             .rank = rank,
             .root = root,
             .chunks = streams * pieces});
  const auto rank_at = [&](int place) { return wrap(root + place, p); };  // places 1..p-1 follow the root
  for (int s = 0; s < streams; ++s) {
    std::vector<Operand> sources = {in(s * pieces, 1)};
    Operand place = out(s * pieces, 1);
    if (rank == root) {
      if (p > 1) sources.push_back(from(rank_at(double_tree_root(p - 1, s % 2, best_second_tree(p - 1)))));
    } else {
      const BinaryNode node = double_tree_node(p - 1, s % 2, best_second_tree(p - 1), wrap(rank - root, p));
      place = to(node.parent == 0 ? root : rank_at(node.parent));
      if (node.left != 0) sources.push_back(from(rank_at(node.left)));
      if (node.right != 0) sources.push_back(from(rank_at(node.right)));
    }
    auto lane = b.lane();
    lane.repeat(pieces, 0, [&] { lane.step(sources, std::vector{place}, {.finish = rank == root}); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const std::int64_t share = std::int64_t{problem.lanes} * problem.pieces;
  if (problem.ranks == 1) return {.chunks = 2 * share};
  const DoubleTreeCosts trees =
      double_tree_costs(problem.ranks - 1, best_second_tree(problem.ranks - 1), problem.pieces);
  return {.rounds = 1 + trees.up,
          .chunks_sent = 2 * share,
          .chunks_received = share * std::max(2, trees.most_children),
          .chunks = 2 * share};
}

}  // namespace

extern const Algorithm k_reduce_double_tree;
const Algorithm k_reduce_double_tree = {
    .name = "double_tree",
    .collective = Collective::reduce,
    .source =
        "Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
        "Parallel Computing 35 (2009)",
    .cost = "2 log2(p) alpha + n beta + n gamma, pipelined",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
