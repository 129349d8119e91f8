#pragma once
// The Bine tree of any number of ranks, distances halving: the tree on which a block spreads in the
// allgather of Swing on one ring (shapes/swing.hpp), the root being its member 0. Steps of 1/3 of the
// ranks, then of half as many, in turn to either side: subtrees are neighbours in rank (on either side of a
// node), and messages go less far than a binomial tree's. De Sensi et al., Bine trees, SC 2025 (arXiv
// 2508.17311), section 3.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/shapes/host_tree.hpp"
#include "algorithms/shapes/swing.hpp"

namespace tamaki {

class BineTree {
 public:
  BineTree(int ranks, int root) : ranks_(ranks), root_(root) {
    if (ranks > 1) ring_.emplace(ranks);
  }
  /// Rank of the parent; -1: `rank` is the root.
  int parent(int rank) const {
    if (rank == root_) return -1;
    const int member = member_of(rank);
    return stands_aside(member) ? root_ : rank_of(ring_->peers(member, step_of(member)).front());
  }
  /// Those served first first: the largest subtrees.
  std::vector<int> children(int rank) const {
    std::vector<int> found;
    const int member = member_of(rank);
    if (ranks_ == 1 || stands_aside(member)) return found;
    for (int k = step_of(member) + 1; k < ring_->steps(); ++k)
      if (const int other = ring_->peers(member, k).front(); step_of(other) == k)
        found.push_back(rank_of(other));
    if (rank == root_ && ranks_ % 2 != 0) found.push_back(rank_of(ranks_ - 1));
    return found;
  }
  /// With subtrees. O(ranks of the subtree times log).
  HostTreeNode node(int rank) const {
    HostTreeNode made{.parent = parent(rank), .children = {}, .ranks = {rank}};
    for (int child : children(rank)) {
      std::vector<int> below = {child};
      for (std::size_t i = 0; i < below.size(); ++i)
        for (int other : children(below[i])) below.push_back(other);
      made.ranks.insert(made.ranks.end(), below.begin(), below.end());
      std::sort(below.begin(), below.end());
      made.children.push_back({child, std::move(below)});
    }
    std::sort(made.ranks.begin(), made.ranks.end());
    std::stable_sort(made.children.begin(), made.children.end(),
                     [](const auto& a, const auto& b) { return a.ranks.size() > b.ranks.size(); });
    return made;
  }

 private:
  int member_of(int rank) const { return (rank - root_ + ranks_) % ranks_; }
  int rank_of(int member) const { return (member + root_) % ranks_; }
  /// The last of an odd number gets everything straight from the root.
  bool stands_aside(int member) const { return ranks_ % 2 != 0 && member == ranks_ - 1; }
  /// Step in which a member is reached; -1: it is the root.
  int step_of(int member) const {
    if (!ring_->power_of_two()) return ring_->step_of(0, member);
    int step = -1;  // the first digit of the labels in which it differs from the root is where they part
    for (int label = ring_->label_of(member); label > 0; label /= 2) ++step;
    return step;
  }

  int ranks_, root_;
  std::optional<SwingRing> ring_;
};

/// Of the tree; every message takes one round, a node takes in, or sends, one at a time.
struct BineTreeCosts {
  HostTreeCosts times;
  std::int64_t widest = 0;  // ranks of the largest subtree below the root
  bool one_run = true;      // subtrees are intervals of ranks
};
/// Children in the order of BineTree::children() or of BineTree::node().
enum class Served { by_step, by_size };
/// O(ranks log^2 ranks).
inline BineTreeCosts bine_tree_costs(int ranks, int root, Served served) {
  const BineTree tree(ranks, root);
  BineTreeCosts costs;
  const auto below = [&](const auto& self, int rank) -> HostTreeCosts {
    HostTreeCosts sum;
    std::vector<int> children;
    if (served == Served::by_step) {
      children = tree.children(rank);
    } else {
      const HostTreeNode node = tree.node(rank);
      for (const auto& child : node.children) {
        children.push_back(child.rank);
        if (rank == root) costs.widest = std::max<std::int64_t>(costs.widest, std::ssize(child.ranks));
      }
      costs.one_run = costs.one_run && (rank == root || runs_of(node.ranks).size() == 1);
    }
    sum.most_children = static_cast<int>(children.size());
    std::vector<std::int64_t> arrivals, in_order;
    std::int64_t sent = 0;
    for (int child : children) {
      const HostTreeCosts found = self(self, child);
      arrivals.push_back(found.up + 1);
      in_order.insert(in_order.begin(), found.up_in_order + 1);
      sum.down = std::max(sum.down, ++sent + found.down);
      sum.most_children = std::max(sum.most_children, found.most_children);
    }
    std::sort(arrivals.begin(), arrivals.end());
    for (std::int64_t at : arrivals) sum.up = std::max(sum.up + 1, at);
    for (std::int64_t at : in_order) sum.up_in_order = std::max(sum.up_in_order + 1, at);
    return sum;
  };
  costs.times = below(below, root);
  return costs;
}

}  // namespace tamaki
