#include "algorithms/shapes/tree_blocks.hpp"

#include <algorithm>
#include <string>

namespace tamaki {

Program tree_gather(const HostTreeNode& node, std::string_view name, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  const bool leaf = node.children.empty();
  Builder b({.algorithm = std::string(name),
             .collective = Collective::gather,
             .ranks = p,
             .rank = rank,
             .root = root,
             .scratch_chunks = rank == root || leaf ? 0 : static_cast<int>(node.ranks.size()),
             .max_width = std::max(1, p - 1)});
  auto lane = b.lane();
  // Where the block of a rank is kept here. At the root that is its place in the output.
  const auto place = [&](int of) {
    if (rank == root) return out(of);
    return tmp(
        static_cast<int>(std::lower_bound(node.ranks.begin(), node.ranks.end(), of) - node.ranks.begin()));
  };
  if (rank == root || !leaf) lane.copy(in(0), place(rank));
  for (auto child = node.children.rbegin(); child != node.children.rend();
       ++child)  // the smallest is ready first
    for (const RankRun& run : runs_of(child->ranks))
      lane.recv(from(child->rank), place(run.first), {.width = run.count, .size_of = out(run.first)});
  if (rank == root) return b.take();
  if (leaf) {
    lane.send(in(0), to(node.parent, node.parent == root ? out(rank) : Operand{}));
    return b.take();
  }
  for (const RankRun& run : runs_of(node.ranks))
    lane.send(tmp(run.index), to(node.parent, node.parent == root ? out(run.first) : Operand{}),
              {.width = run.count, .size_of = out(run.first)});
  return b.take();
}

Program tree_scatter(const HostTreeNode& node, std::string_view name, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  const bool leaf = node.children.empty();
  Builder b({.algorithm = std::string(name),
             .collective = Collective::scatter,
             .ranks = p,
             .rank = rank,
             .root = root,
             .scratch_chunks = rank == root || leaf ? 0 : static_cast<int>(node.ranks.size()),
             .max_width = std::max(1, p - 1)});
  auto lane = b.lane();
  // Where the block for a rank is kept here. At the root that is its place in the input.
  const auto place = [&](int of) {
    if (rank == root) return in(of);
    return tmp(
        static_cast<int>(std::lower_bound(node.ranks.begin(), node.ranks.end(), of) - node.ranks.begin()));
  };
  if (rank != root && leaf) {
    lane.recv(from(node.parent), out(0));
    return b.take();
  }
  if (rank != root)
    for (const RankRun& run : runs_of(node.ranks))
      lane.recv(from(node.parent), tmp(run.index), {.width = run.count, .size_of = in(run.first)});
  for (const auto& child : node.children) {
    // A leaf child puts its block into its output; the others keep theirs in scratch.
    const Operand lands = child.ranks.size() == 1 ? out(0) : Operand{};
    for (const RankRun& run : runs_of(child.ranks))
      lane.send(place(run.first), to(child.rank, lands), {.width = run.count, .size_of = in(run.first)});
  }
  lane.copy(place(rank), out(0), {.size_of = in(rank)});
  return b.take();
}

}  // namespace tamaki
