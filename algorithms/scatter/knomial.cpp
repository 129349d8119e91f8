// k-nomial tree: a node receives the blocks of its subtree, an interval of ranks, in one message and hands
// them on.
#include "algorithms/shapes/knomial.hpp"
#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, root = problem.root;
  const int widest = widest_subtree(p, problem.radix, root);
  const KnomialNode node = knomial_node(p, problem.radix, root, rank);
  const bool leaf = node.children.empty();
  Builder b({.algorithm = "knomial",
             .collective = Collective::scatter,
             .ranks = p,
             .rank = rank,
             .root = root,
             .scratch_chunks = rank == root || leaf ? 0 : node.own.size(),
             .max_width = widest});
  auto lane = b.lane();
  if (rank != root && leaf) {
    lane.recv(from(node.parent), out(0));
    return b.take();
  }
  const auto place = [&](int i) { return rank == root ? in(i) : tmp(i - node.own.begin); };
  if (rank != root)
    lane.recv(from(node.parent), tmp(0), {.width = node.own.size(), .size_of = in(node.own.begin)});
  for (const Subtree& child : node.children)
    lane.send(place(child.begin), to(child.head, child.size() == 1 ? out(0) : Operand{}),
              {.width = child.size(), .size_of = in(child.begin)});
  lane.copy(place(rank), out(0));
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  return {.rounds = knomial_costs(p, problem.radix, problem.root).down,
          .chunks_sent = p - 1,
          .chunks_received = p > 1 ? widest_subtree(p, problem.radix, problem.root) : 0};
}

}  // namespace

extern const Algorithm k_scatter_knomial;
const Algorithm k_scatter_knomial = {
    .name = "knomial",
    .collective = Collective::scatter,
    .source = "folklore (binomial tree: Thakur, Rabenseifner, Gropp, IJHPCA 19 (2005))",
    .cost = "(k-1) log_k(p) alpha + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
