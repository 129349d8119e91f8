#pragma once
// The k-nomial tree over ranks 0..p-1, for any p and root: the ranks are cut into k intervals of nearly
// equal length, the longer ones first; the interval of the root keeps it as its head, each other one is
// headed by its first rank, a child of the root; and so on inside each interval. With k = 2, root 0 and p a
// power of two it is the binomial tree.
//
// Every subtree is an interval of ranks. So a gather's blocks stay contiguous, a reduction keeps rank order
// with any root, and neighbours in rank order (the ranks of a host) meet low in the tree.

#include <algorithm>
#include <map>
#include <vector>

#include "algorithms/shapes/arguments.hpp"

namespace tamaki {

struct Subtree {
  int head = 0;
  int begin = 0, end = 0;  // its ranks are [begin, end)
  int size() const { return end - begin; }
};

struct KnomialNode {
  int parent = -1;  // -1: the root
  Subtree own;
  std::vector<Subtree> children;  // the largest first

  /// The children by ascending rank.
  std::vector<Subtree> in_rank_order() const {
    std::vector<Subtree> sorted = children;
    std::sort(sorted.begin(), sorted.end(),
              [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
    return sorted;
  }
};

/// The children of the head of `tree`, the largest first. O(radix log size).
inline std::vector<Subtree> knomial_children(Subtree tree, int radix) {
  std::vector<Subtree> children;
  while (tree.size() > 1) {
    const int parts = std::min(radix, tree.size());
    Subtree kept = tree;
    int begin = tree.begin;
    for (int i = 0; i < parts; ++i) {
      const int end = begin + tree.size() / parts + (i < tree.size() % parts);
      if (tree.head >= begin && tree.head < end)
        kept = {tree.head, begin, end};
      else
        children.push_back({begin, begin, end});
      begin = end;
    }
    tree = kept;
  }
  return children;
}

/// Rank `rank`'s place in the tree of p ranks. O(radix log^2 p).
inline KnomialNode knomial_node(int p, int radix, int root, int rank) {
  KnomialNode node = {.parent = -1, .own = {root, 0, p}, .children = knomial_children({root, 0, p}, radix)};
  while (node.own.head != rank)
    for (const Subtree& child : node.children)
      if (rank >= child.begin && rank < child.end) {
        node = {.parent = node.own.head, .own = child, .children = knomial_children(child, radix)};
        break;
      }
  return node;
}

/// Size of the largest subtree below the root (1 where there is none).
inline int widest_subtree(int p, int radix, int root) {
  int widest = 1;
  for (const Subtree& child : knomial_children({root, 0, p}, radix))
    widest = std::max(widest, child.size());
  return widest;
}

/// What the tree costs. Every message takes one round; a node takes in, or sends, one at a time.
struct TreeCosts {
  int up = 0;             // rounds of a reduction or gather
  int down = 0;           // rounds of a broadcast or scatter that serves the largest subtree first
  int children = 0;       // of the node that has most
  int neighbours = 0;     // children and parent, of the node that has most
  int head_children = 0;  // of the head
};

/// `known`: costs by size of subtrees headed by their first rank, filled on the way. A level of the tree
/// has subtrees of two sizes at most, so few are looked at.
inline TreeCosts knomial_costs(Subtree tree, int radix, std::map<int, TreeCosts>& known) {
  TreeCosts costs;
  const std::vector<Subtree> children = knomial_children(tree, radix);
  costs.children = costs.neighbours = costs.head_children = static_cast<int>(children.size());
  std::vector<int> arrivals;
  int sent = 0;
  for (const Subtree& child : children) {
    if (!known.contains(child.size())) {
      const TreeCosts found = knomial_costs({0, 0, child.size()}, radix, known);
      known[child.size()] = found;
    }
    const TreeCosts& below = known[child.size()];
    arrivals.push_back(below.up + 1);
    costs.down = std::max(costs.down, ++sent + below.down);
    costs.children = std::max(costs.children, below.children);
    costs.neighbours = std::max({costs.neighbours, below.head_children + 1, below.neighbours});
  }
  std::sort(arrivals.begin(), arrivals.end());
  for (int arrival : arrivals) costs.up = std::max(costs.up + 1, arrival);
  return costs;
}

/// Costs of the tree of p ranks.
inline TreeCosts knomial_costs(int p, int radix, int root) {
  std::map<int, TreeCosts> known;
  return knomial_costs({root, 0, p}, radix, known);
}

}  // namespace tamaki
