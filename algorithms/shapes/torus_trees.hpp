#pragma once
// Spanning trees of a torus from one root that share no directed link: one for each of three or two
// dimensions (on a ring, one for each direction), after the fashion of Fujitsu's Trinaryx3. Each carries
// its share of the message as a pipeline, so that a rank sends on as many links at a time as there are
// trees. Edge-disjoint trees on tori: Barnett, Payne, van de Geijn, Watts, Broadcasting on meshes with
// worm-hole routing, JPDC 35 (1996).
//
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

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/shapes/torus.hpp"

namespace tamaki {

/// Empty where the topology is a torus of one to three dimensions with sides of 3 and more (and any of 1).
inline std::string refuse_without_torus_trees(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_without_grid(topology, problem); !reason.empty()) return reason;
  int dimensions = 0;
  for (const GridDimension& d : topology.grid) {
    if (d.size == 1) continue;
    ++dimensions;
    if (d.size < 3)
      return "needs sides of 3 or more (or 1), and the torus has one of " + std::to_string(d.size);
    if (!d.wraps) return "needs a torus, and a side of " + std::to_string(d.size) + " does not wrap";
  }
  if (dimensions > 3) return "needs at most 3 dimensions, the torus has " + std::to_string(dimensions);
  return {};
}

class TorusTrees {
 public:
  TorusTrees(const Topology& topology, int root) : grid_(topology), root_(grid_.position_of(root)) {}

  int count() const { return grid_.dimensions() == 0 ? 1 : std::max(2, grid_.dimensions()); }

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
        const int d = (tree + i) % grid_.dimensions();
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
};

/// What the trees cost with one piece; every message takes one round, in each tree a node takes in, or
/// sends, one at a time.
struct TorusTreesCosts {
  std::int64_t up = 0, down = 0, up_and_down = 0;
  std::int64_t most_children = 0, most_neighbours = 0;  // of a rank, in all trees together
};
inline TorusTreesCosts torus_trees_costs(const Topology& topology, int ranks, int root) {
  const TorusTrees trees(topology, root);
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

}  // namespace tamaki
