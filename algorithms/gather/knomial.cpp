// k-nomial tree: a node collects the blocks of its subtree, an interval of ranks, and sends them on in one
// message.
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
             .collective = Collective::gather,
             .ranks = p,
             .rank = rank,
             .root = root,
             .scratch_chunks = rank == root || leaf ? 0 : node.own.size(),
             .max_width = widest});
  auto lane = b.lane();
  // Where the block of rank i is kept here. At the root that is its place in the output.
  const auto place = [&](int i) { return rank == root ? out(i) : tmp(i - node.own.begin); };
  if (rank == root || !leaf) lane.copy(in(0), place(rank));
  for (auto child = node.children.rbegin(); child != node.children.rend();
       ++child)  // the smallest is ready first
    lane.recv(from(child->head), place(child->begin),
              {.width = child->size(), .size_of = out(child->begin)});
  if (rank == root) return b.take();
  if (leaf) {
    lane.send(in(0), to(node.parent, node.parent == root ? out(rank) : Operand{}));
    return b.take();
  }
  lane.send(tmp(0), to(node.parent, node.parent == root ? out(node.own.begin) : Operand{}),
            {.width = node.own.size(), .size_of = out(node.own.begin)});
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  return {.rounds = knomial_costs(p, problem.radix, problem.root).up,
          .chunks_sent = p > 1 ? widest_subtree(p, problem.radix, problem.root) : 0,
          .chunks_received = p - 1};
}

}  // namespace

extern const Algorithm k_gather_knomial;
const Algorithm k_gather_knomial = {
    .name = "knomial",
    .collective = Collective::gather,
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
