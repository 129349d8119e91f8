#pragma once
// A tree over hosts, over the NUMA domains of each host, and over the ranks of each domain: k-nomial at
// each level, so that a message crosses into each host, and into each domain, once.

#include <cstdint>
#include <vector>

#include "algorithms/shapes/levels.hpp"

namespace tamaki {

struct HostTreeNode {
  struct Child {
    int rank = 0;
    std::vector<int> ranks;  // of its subtree, ascending
  };
  int parent = -1;              // -1: the root, or the first of its host where the tree ends at hosts
  std::vector<Child> children;  // across hosts first, then between domains; the largest of each first
  std::vector<int> ranks;       // of its own subtree, ascending
};

enum class TreeReach { all, within_hosts };

/// Rank `rank`'s place in the tree. `within_hosts`: one tree for each host, with the root's host rooted at
/// `root` and the others at their first ranks. O(ranks of the subtree + radix log).
HostTreeNode host_tree_node(const Hierarchy& hierarchy, int radix, int root, int rank,
                            TreeReach reach = TreeReach::all);

/// First rank of a host in the tree: the root in its host.
int host_leader(const Hierarchy& hierarchy, int root, int host);

/// Consecutive numbers of an ascending list.
struct RankRun {
  int first = 0, index = 0, count = 0;  // first rank, its index in the list
};
std::vector<RankRun> runs_of(const std::vector<int>& ranks);

/// What the tree costs; every message takes one round, a node takes in, or sends, one at a time.
struct HostTreeCosts {
  std::int64_t up = 0;           // children's messages taken in as they come
  std::int64_t up_in_order = 0;  // from the last child to the first
  std::int64_t down = 0;         // first child first
  int most_children = 0;
};
/// Below `rank`. O(ranks of the subtree times depth).
HostTreeCosts host_tree_costs(const Hierarchy& hierarchy, int radix, int root, int rank,
                              TreeReach reach = TreeReach::all);

}  // namespace tamaki
