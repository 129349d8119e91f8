// Hierarchical, for few bytes: each host adds up at its first rank (through its NUMA domains), the hosts'
// first ranks exchange their sums all to all by recursive multiplying, and each host is told the result.
// Hosts beyond the largest power of the radix give theirs to a host before them, and get the result from
// it.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_tree.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Largest power of `radix` that is at most `hosts`.
int active_hosts(int hosts, int radix) {
  long long power = 1;
  while (power * radix <= hosts) power *= radix;
  return static_cast<int>(power);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const int p = problem.ranks, radix = problem.radix;
  Builder b({.algorithm = "hierarchical_tree",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = 1});
  const Hierarchy hierarchy(topology, p, Hierarchy::Depth::numa_if_known);
  const int host = hierarchy.host_of(rank), hosts = hierarchy.hosts();
  const auto leader = [&](int h) { return hierarchy.ranks_of_host(h)[0]; };
  const HostTreeNode node = host_tree_node(hierarchy, radix, leader(host), rank, TreeReach::within_hosts);
  auto lane = b.lane();
  std::vector<Operand> sources = {in(0)}, told = {out(0)};
  for (const auto& child : node.children) {
    sources.push_back(from(child.rank));
    told.push_back(to(child.rank, out(0)));
  }
  if (rank != leader(host)) {
    lane.step(sources, std::vector{to(node.parent)});
    lane.step(std::vector{from(node.parent)}, told);
    return b.take();
  }
  const int active = active_hosts(hosts, radix);
  std::vector<int> extra;  // hosts that this one stands for
  for (int h = active + host; host < active && h < hosts; h += active) extra.push_back(h);
  if (host >= active) {
    const int other = leader(host % active);
    lane.step(sources, std::vector{to(other)});
    lane.step(std::vector{from(other)}, told);
    return b.take();
  }
  for (int h : extra) sources.push_back(from(leader(h)));
  // In each round, hosts whose numbers differ in one digit send each other what they have: from scratch, as
  // it is overwritten before the others may have read it.
  const auto held = [&](bool complete) { return complete ? out(0) : tmp(0); };
  lane.step(sources, std::vector{held(active == 1)}, {.finish = active == 1, .size_of = in(0)});
  for (int distance = 1; distance < active; distance *= radix) {
    const int digit = host / distance % radix;
    const bool complete = distance * radix == active;
    std::vector<Operand> given, taken;
    for (int d = 0; d < radix; ++d)  // by ascending host, so that all add up in the same order
      taken.push_back(d == digit ? tmp(0) : from(leader(host + (d - digit) * distance)));
    for (int d = 1; d < radix; ++d)
      given.push_back(to(leader(host + ((digit + d) % radix - digit) * distance)));
    lane.step(std::vector{tmp(0)}, given, {.size_of = in(0)});
    lane.step(taken, std::vector{held(complete)}, {.finish = complete, .size_of = in(0)});
  }
  std::vector<Operand> last(told.begin() + 1, told.end());
  for (int h : extra) last.insert(last.begin(), to(leader(h), out(0)));
  if (!last.empty()) lane.step(std::vector{out(0)}, last);
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Hierarchy hierarchy(topology, problem.ranks, Hierarchy::Depth::numa_if_known);
  const int hosts = hierarchy.hosts(), radix = problem.radix, active = active_hosts(hosts, radix);
  ClosedForm form = {.rounds = ClosedForm::kNotStated};
  std::int64_t exchanged = 0;
  for (int distance = 1; distance < active; distance *= radix) exchanged += radix - 1;
  for (int h = 0; h < hosts; ++h) {
    const int first = hierarchy.ranks_of_host(h)[0];
    const HostTreeCosts tree = host_tree_costs(hierarchy, radix, first, first, TreeReach::within_hosts);
    const HostTreeNode node = host_tree_node(hierarchy, radix, first, first, TreeReach::within_hosts);
    const std::int64_t extra = h < active ? (hosts - active + active - 1 - h) / active : 0;
    const std::int64_t own = std::ssize(node.children) + (h < active ? exchanged + extra : 1);
    form.chunks_sent = std::max(form.chunks_sent, own);
    if (hierarchy.even() && hosts == active) form.rounds = tree.up + exchanged + tree.down;
    for (int rank : hierarchy.ranks_of_host(h)) {
      if (rank == first) continue;
      const HostTreeNode inner = host_tree_node(hierarchy, radix, first, rank, TreeReach::within_hosts);
      form.chunks_sent = std::max(form.chunks_sent, std::ssize(inner.children) + std::int64_t{1});
    }
  }
  form.chunks_received = form.chunks_sent;
  if (hierarchy.levels() > 2) form.rounds = ClosedForm::kNotStated;
  return form;
}

}  // namespace

extern const Algorithm k_allreduce_hierarchical_tree;
const Algorithm k_allreduce_hierarchical_tree = {
    .name = "hierarchical_tree",
    .collective = Collective::allreduce,
    .source =
        "Luo et al., HAN: a hierarchical autotuned collective communication framework, CLUSTER 2020; "
        "recursive "
        "multiplying: Ruefenacht, Bull, Booth, Parallel Computing 69 (2017)",
    .cost =
        "(k-1) log_k(H) (alpha + n beta + n gamma) + 2 (k-1) log_k(g) (alpha_in + n beta_in) + ..., H "
        "hosts of g ranks; "
        "2 (alpha + n beta) more if H is no power of k",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .uses_topology = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
