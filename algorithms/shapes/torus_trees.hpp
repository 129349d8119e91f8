#pragma once
// Spanning trees of a torus from one root that share no directed link, after the fashion of Fujitsu's
// Trinaryx3 and Trinaryx6. Each carries its share of the message as a pipeline, so that a rank sends on as
// many links at a time as there are trees. Edge-disjoint trees on tori: Barnett, Payne, van de Geijn,
// Watts, Broadcasting on meshes with worm-hole routing, JPDC 35 (1996).
//
// Few: one for each of three or two dimensions (on a ring, one for each direction).
// Tree k takes the dimensions cyclically from the k-th. Seen from the root, in three dimensions:
//   - a line in its first dimension, onwards;
//   - from each point of the line, a line in the second: onwards, but backwards from the root itself, as
//   onwards is the
//     first line of the next tree;
//   - from each point of that plane, a line in the third, backwards; except the root's, which the tree
//   before takes for
//     its second: its points hang on their neighbours in the second dimension, by the one link of that row
//     that nobody takes.
// In two dimensions: a line onwards in the first, from each of its points a line backwards in the second.
//
// All links: two for each of any number of dimensions, one in each direction, so that every link into every
// point but the root is in one tree. Tree k takes the dimensions cyclically from the k-th, all in its
// direction. Seen from the root, a point off the root in dimension k hangs on its neighbour in the last
// dimension, in that order, in which it is off the root; a point that is not, on the last one that is, by
// the link that closes the ring in dimension k. At a point that is off the root in some dimensions, the
// trees of these take the links of each other's dimensions (each that of the one before), the other trees
// those of their own, so that no two trees share one.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/torus.hpp"

namespace tamaki {

enum class TreeLinks { few, all };

/// Empty where the topology is a torus of one to three (`few`) or any number of dimensions with sides of 3
/// and more (and any of 1).
inline std::string refuse_without_torus_trees(const Topology& topology, const Problem& problem,
                                              TreeLinks links = TreeLinks::few) {
  if (std::string reason = refuse_without_grid(topology, problem); !reason.empty()) return reason;
  int dimensions = 0;
  for (const GridDimension& d : topology.grid) {
    if (d.size == 1) continue;
    ++dimensions;
    if (d.size < 3)
      return "needs sides of 3 or more (or 1), and the torus has one of " + std::to_string(d.size);
    if (!d.wraps) return "needs a torus, and a side of " + std::to_string(d.size) + " does not wrap";
  }
  if (dimensions > 3 && links == TreeLinks::few)
    return "needs at most 3 dimensions, the torus has " + std::to_string(dimensions);
  return {};
}

class TorusTrees {
 public:
  TorusTrees(const Topology& topology, int root, TreeLinks links = TreeLinks::few)
      : grid_(topology), root_(grid_.position_of(root)), links_(links) {}

  int count() const {
    const int dimensions = grid_.dimensions();
    return dimensions == 0 ? 1 : links_ == TreeLinks::all ? 2 * dimensions : std::max(2, dimensions);
  }

  /// Lanes that share out the pieces of a tree: as many as links, if ports are; one where the pieces are
  /// too few to fill a pipeline for each (found by simulation of 8x8x8: lanes of a tree share its links,
  /// and so are slower each).
  int turns(int pieces) const {
    int depth = 0;
    for (int d = 0; d < grid_.dimensions(); ++d) depth += grid_.size(d) - 1;
    return grid_.ports() == 1 || pieces < 4 * depth ? 1 : std::max(1, 2 * grid_.dimensions());
  }

  /// Rank of the parent of `rank` in a tree; -1: it is the root.
  int parent(int tree, int rank) const {
    const int at = parent_at(tree, grid_.position_of(rank));
    return at < 0 ? -1 : grid_.rank_at(at);
  }
  std::vector<int> children(int tree, int rank) const {
    const int here = grid_.position_of(rank);
    std::vector<int> found;
    for (int i = 0; i < grid_.dimensions(); ++i)
      for (int way : {1, -1}) {
        const int d = ((links_ == TreeLinks::all ? tree / 2 : tree) + i) % grid_.dimensions();
        const int other = grid_.with(here, d, grid_.coordinate(here, d) + way);
        if (parent_at(tree, other) == here) found.push_back(grid_.rank_at(other));
      }
    return found;
  }

 private:
  /// Coordinate seen from the root.
  int away(int position, int d) const {
    const int a = grid_.size(d);
    return (grid_.coordinate(position, d) - grid_.coordinate(root_, d) + a) % a;
  }
  int step(int position, int d, int by) const {
    return grid_.with(position, d, grid_.coordinate(position, d) + by);
  }

  int parent_at(int tree, int position) const {
    if (position == root_) return -1;
    const int dimensions = grid_.dimensions();
    if (links_ == TreeLinks::all) {
      const int first = tree / 2, way = tree % 2 == 0 ? 1 : -1;
      int hangs_in = first;
      for (int i = 1; i < dimensions && away(position, first) != 0; ++i)
        if (const int d = (first + i) % dimensions; away(position, d) != 0) hangs_in = d;
      return step(position, hangs_in, -way);
    }
    if (dimensions == 1) return step(position, 0, tree == 0 ? -1 : 1);
    const int line = tree, plane = (tree + 1) % dimensions;
    const int l = away(position, line), q = away(position, plane);
    if (dimensions == 2) return q != 0 ? step(position, plane, 1) : step(position, line, -1);
    const int every = (tree + 2) % dimensions, e = away(position, every);
    if (e != 0) return l == 0 && q == 0 ? step(position, plane, 1) : step(position, every, 1);
    if (q != 0) return step(position, plane, l == 0 ? 1 : -1);
    return step(position, line, -1);
  }

  Grid grid_;
  int root_;
  TreeLinks links_;
};

/// What the trees cost with one piece; every message takes one round, in each tree a node takes in, or
/// sends, one at a time.
struct TorusTreesCosts {
  std::int64_t up = 0, down = 0, up_and_down = 0;
  std::int64_t most_children = 0, most_neighbours = 0;  // of a rank, in all trees together
};
inline TorusTreesCosts torus_trees_costs(const TorusTrees& trees, int ranks, int root) {
  TorusTreesCosts costs;
  std::vector<std::int64_t> children(static_cast<std::size_t>(ranks), 0),
      neighbours(static_cast<std::size_t>(ranks), 0);
  for (int tree = 0; tree < trees.count(); ++tree) {
    std::vector<int> order = {root};  // parents before children
    for (std::size_t i = 0; i < order.size(); ++i)
      for (int child : trees.children(tree, order[i])) order.push_back(child);
    std::vector<std::int64_t> up(static_cast<std::size_t>(ranks), 0), down = up;
    for (int rank : order) {
      const std::vector<int> below = trees.children(tree, rank);
      for (std::size_t i = 0; i < below.size(); ++i)
        down[below[i]] = down[rank] + static_cast<std::int64_t>(i) + 1;
      children[rank] += std::ssize(below);
      neighbours[rank] += std::ssize(below) + (rank != root);
      costs.down = std::max(costs.down, down[rank]);
    }
    for (auto rank = order.rbegin(); rank != order.rend(); ++rank) {
      std::vector<std::int64_t> arrivals;
      for (int child : trees.children(tree, *rank)) arrivals.push_back(up[child] + 1);
      std::sort(arrivals.begin(), arrivals.end());
      for (std::int64_t at : arrivals) up[*rank] = std::max(up[*rank] + 1, at);
    }
    costs.up = std::max(costs.up, up[root]);
    costs.up_and_down = std::max(costs.up_and_down, up[root] + *std::max_element(down.begin(), down.end()));
  }
  for (int r = 0; r < ranks; ++r) {
    costs.most_children = std::max(costs.most_children, children[r]);
    costs.most_neighbours = std::max(costs.most_neighbours, neighbours[r]);
  }
  return costs;
}

/// The collectives on these trees: tree t carries chunks [t * pieces, (t + 1) * pieces).
Program torus_trees_broadcast(const TorusTrees& trees, std::string_view name, const Problem& problem,
                              int rank);
Program torus_trees_reduce(const TorusTrees& trees, std::string_view name, const Problem& problem,
                           int rank);
/// Up to rank 0, the root of the trees, and back down.
Program torus_trees_allreduce(const TorusTrees& trees, std::string_view name, const Problem& problem,
                              int rank);
ClosedForm torus_trees_form(const TorusTrees& trees, const Problem& problem);

}  // namespace tamaki
