#pragma once
// Two binary trees over places 1..n, such that (almost) every place is a leaf in one of them: each carries
// half of the message, and every node's links are busy both ways. Sanders, Speck, Traff, Two-tree
// algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35 (2009).
//
// The first tree is in order (left subtree lower, right subtree higher places); its leaves are the odd
// places. The second is the first's mirror image, whose leaves are the even places where n is even; for odd
// n it is the first shifted by one place.

#include <algorithm>
#include <utility>

#include "algorithms/shapes/arguments.hpp"

namespace tamaki {

/// Places of a binary tree's neighbours, 1..n; 0: there is none.
struct BinaryNode {
  int parent = 0;
  int left = 0, right = 0;
};

/// The in-order tree. O(log n).
inline BinaryNode inorder_node(int n, int place) {
  const int low = place & -place;
  BinaryNode node;
  node.parent = (place ^ low) | (low << 1);
  if (node.parent > n) node.parent = place ^ low;
  if (low == 1) return node;
  node.left = place - low / 2;
  for (int step = low / 2; step > 0 && node.right == 0; step /= 2)
    if (place + step <= n) node.right = place + step;
  return node;
}

enum class SecondTree { mirrored, shifted };

/// Tree 0 or 1 of the pair. A mirrored second tree is in order too, and `left` is then still its lower
/// subtree.
inline BinaryNode double_tree_node(int n, int tree, SecondTree second, int place) {
  if (tree == 0) return inorder_node(n, place);
  if (second == SecondTree::mirrored) {
    const BinaryNode image = inorder_node(n, n + 1 - place);
    const auto back = [n](int x) { return x == 0 ? 0 : n + 1 - x; };
    return {back(image.parent), back(image.right), back(image.left)};
  }
  const BinaryNode image = inorder_node(n, place % n + 1);
  const auto back = [n](int x) { return x == 0 ? 0 : x == 1 ? n : x - 1; };
  return {back(image.parent), back(image.left), back(image.right)};
}

/// Place of the root of tree 0 or 1.
inline int double_tree_root(int n, int tree, SecondTree second) {
  const int root = floor_power_of_two(n);
  if (tree == 0) return root;
  if (second == SecondTree::mirrored) return n + 1 - root;
  return root == 1 ? n : root - 1;
}

/// The shape that makes the leaves of the two trees differ.
constexpr SecondTree best_second_tree(int n) {
  return n % 2 == 0 ? SecondTree::mirrored : SecondTree::shifted;
}

/// What the pair costs, by a walk over its 2n nodes; `pieces` follow each other through each tree. Every
/// message takes one round; in each tree a node takes in, or sends, one at a time.
struct DoubleTreeCosts {
  int up = 0, down = 0, up_and_down = 0;  // rounds of a reduction, a broadcast, one after the other
  int most_children = 0;                  // of a place, in both trees together
  int most_neighbours = 0;                // children and parents
};

/// Rounds of one piece below `place`: {up, down}.
inline std::pair<int, int> double_tree_rounds(int n, int tree, SecondTree second, int place) {
  const BinaryNode node = double_tree_node(n, tree, second, place);
  int up = 0, down = 0, sent = 0, last = 0;
  for (int child : {node.left, node.right}) {
    if (child == 0) continue;
    const auto [child_up, child_down] = double_tree_rounds(n, tree, second, child);
    up =
        sent == 0 ? child_up + 1 : std::max(std::min(last, child_up + 1) + 1, std::max(last, child_up + 1));
    last = child_up + 1;
    down = std::max(down, ++sent + child_down);
  }
  return {up, down};
}

inline DoubleTreeCosts double_tree_costs(int n, SecondTree second, int pieces) {
  DoubleTreeCosts costs;
  const int degree =
      n >= 3 ? 2 : 1;  // messages that the busiest node takes in, or sends, for each piece of a tree
  for (int tree : {0, 1}) {
    const auto [up, down] = double_tree_rounds(n, tree, second, double_tree_root(n, tree, second));
    costs.up = std::max(costs.up, up + degree * (pieces - 1));
    costs.down = std::max(costs.down, down + degree * (pieces - 1));
    costs.up_and_down = std::max(costs.up_and_down, up + down + (n > 1 ? degree * (pieces - 1) : 0));
  }
  for (int place = 1; place <= n; ++place) {
    int children = 0, parents = 0;
    for (int tree : {0, 1}) {
      const BinaryNode node = double_tree_node(n, tree, second, place);
      children += (node.left != 0) + (node.right != 0);
      parents += node.parent != 0;
    }
    costs.most_children = std::max(costs.most_children, children);
    costs.most_neighbours = std::max(costs.most_neighbours, children + parents);
  }
  return costs;
}

}  // namespace tamaki
