#pragma once
// Gather and scatter on any tree: a node collects, or gets, the blocks of its subtree, and passes
// consecutive ones on in one message.

#include <string_view>

#include "algorithms/shapes/host_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

/// `node`: this rank's place in the tree rooted at problem.root; the largest subtree first, which is served
/// first, and is waited for last.
Program tree_gather(const HostTreeNode& node, std::string_view name, const Problem& problem, int rank);
Program tree_scatter(const HostTreeNode& node, std::string_view name, const Problem& problem, int rank);

}  // namespace tamaki
