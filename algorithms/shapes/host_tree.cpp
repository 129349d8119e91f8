#include "algorithms/shapes/host_tree.hpp"

#include <algorithm>

#include "algorithms/shapes/knomial.hpp"

namespace tamaki {
namespace {

int domain_leader(const Hierarchy& hierarchy, int root, int host, int domain) {
  if (hierarchy.host_of(root) == host && hierarchy.domain_of(root) == domain) return root;
  return hierarchy.domains_of(host)[domain][0];
}

}  // namespace

int host_leader(const Hierarchy& hierarchy, int root, int host) {
  return hierarchy.host_of(root) == host ? root : hierarchy.ranks_of_host(host)[0];
}

HostTreeNode host_tree_node(const Hierarchy& hierarchy, int radix, int root, int rank, TreeReach reach) {
  HostTreeNode node;
  const int host = hierarchy.host_of(rank), domain = hierarchy.domain_of(rank);
  const int leader = host_leader(hierarchy, root, host);
  const auto add = [&](int head, std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    node.children.push_back({head, std::move(ranks)});
  };
  if (rank == leader && reach == TreeReach::all) {
    const KnomialNode place = knomial_node(hierarchy.hosts(), radix, hierarchy.host_of(root), host);
    if (place.parent >= 0) node.parent = host_leader(hierarchy, root, place.parent);
    for (const Subtree& child : place.children) {
      std::vector<int> ranks;
      for (int h = child.begin; h < child.end; ++h) {
        const auto of_host = hierarchy.ranks_of_host(h);
        ranks.insert(ranks.end(), of_host.begin(), of_host.end());
      }
      add(host_leader(hierarchy, root, child.head), std::move(ranks));
    }
  }
  const auto domains = hierarchy.domains_of(host);
  const int leading = domain_leader(hierarchy, root, host, domain);
  if (rank == leading) {
    const KnomialNode place =
        knomial_node(static_cast<int>(domains.size()), radix, hierarchy.domain_of(leader), domain);
    if (place.parent >= 0) node.parent = domain_leader(hierarchy, root, host, place.parent);
    for (const Subtree& child : place.children) {
      std::vector<int> ranks;
      for (int d = child.begin; d < child.end; ++d)
        ranks.insert(ranks.end(), domains[d].begin(), domains[d].end());
      add(domain_leader(hierarchy, root, host, child.head), std::move(ranks));
    }
  }
  const std::vector<int>& members = domains[domain];
  const KnomialNode place = knomial_node(static_cast<int>(members.size()), radix,
                                         hierarchy.index_of(leading), hierarchy.index_of(rank));
  if (place.parent >= 0) node.parent = members[place.parent];
  for (const Subtree& child : place.children)
    add(members[child.head], std::vector<int>(members.begin() + child.begin, members.begin() + child.end));
  node.ranks.push_back(rank);
  for (const auto& child : node.children)
    node.ranks.insert(node.ranks.end(), child.ranks.begin(), child.ranks.end());
  std::sort(node.ranks.begin(), node.ranks.end());
  return node;
}

std::vector<RankRun> runs_of(const std::vector<int>& ranks) {
  std::vector<RankRun> runs;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i > 0 && ranks[i] == ranks[i - 1] + 1)
      ++runs.back().count;
    else
      runs.push_back({ranks[i], i, 1});
  return runs;
}

HostTreeCosts host_tree_costs(const Hierarchy& hierarchy, int radix, int root, int rank, TreeReach reach) {
  const HostTreeNode node = host_tree_node(hierarchy, radix, root, rank, reach);
  HostTreeCosts costs;
  costs.most_children = static_cast<int>(node.children.size());
  std::vector<std::int64_t> arrivals, in_order;
  std::int64_t sent = 0;
  for (const auto& child : node.children) {
    const HostTreeCosts below = host_tree_costs(hierarchy, radix, root, child.rank, reach);
    arrivals.push_back(below.up + 1);
    in_order.insert(in_order.begin(), below.up_in_order + 1);
    costs.down = std::max(costs.down, ++sent + below.down);
    costs.most_children = std::max(costs.most_children, below.most_children);
  }
  std::sort(arrivals.begin(), arrivals.end());
  for (std::int64_t at : arrivals) costs.up = std::max(costs.up + 1, at);
  for (std::int64_t at : in_order) costs.up_in_order = std::max(costs.up_in_order + 1, at);
  return costs;
}

}  // namespace tamaki
