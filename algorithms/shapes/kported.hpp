#pragma once
// Trees for ranks that can send, and take in, k messages at the same time: (k+1)-nomial
// (shapes/knomial.hpp), the i-th child of a node on its lane i mod k, so that the k children of a level are
// served at once, each by a port of its own. ceil(log_(k+1) p) messages, one after the other, where p is a
// power of k+1. Johnsson and Ho, Optimum broadcasting and personalized communication in hypercubes, IEEE
// Trans. Computers 38 (1989); Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all
// communications in multiport message-passing systems, IEEE TPDS 8 (1997).

#include <algorithm>
#include <map>
#include <vector>

#include "algorithms/shapes/knomial.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

struct KportedNode {
  int parent = -1;                      // -1: the root
  std::vector<std::vector<int>> lanes;  // children of each; lane 0 is there always

  /// Ports: those of the topology, if it is one of `ranks` ranks.
  static int ports(const Topology& topology, int ranks) {
    return topology.ranks() == ranks ? std::max(1, topology.ports) : 1;
  }
  KportedNode(const Topology& topology, int ranks, int root, int rank) {
    const int k = ports(topology, ranks);
    const KnomialNode node = knomial_node(ranks, k + 1, root, rank);
    parent = node.parent;
    lanes.resize(std::clamp<std::size_t>(node.children.size(), 1, static_cast<std::size_t>(k)));
    for (std::size_t i = 0; i < node.children.size(); ++i)
      lanes[i % lanes.size()].push_back(node.children[i].head);
  }
  int scratch() const { return static_cast<int>(lanes.size()) - 1; }
};

/// Adds up what the children send: in scratch, for each lane but the first, which then sends the sum to the
/// parent or, at the root, puts it in `results`.
inline void kported_reduce(std::vector<Builder::LaneBuilder>* lanes, const KportedNode& node,
                           const std::vector<Operand>& results) {
  std::vector<Operand> sums = {in(0)};
  for (int child : node.lanes[0]) sums.push_back(from(child, 0));
  std::vector<StepId> after;
  for (std::size_t i = 1; i < node.lanes.size(); ++i) {
    std::vector<Operand> sources;
    for (int child : node.lanes[i]) sources.push_back(from(child, 0));
    const Operand sum = tmp(static_cast<int>(i) - 1);
    after.push_back((*lanes)[i].step(sources, std::vector{sum}, {.size_of = in(0)}));
    sums.push_back(sum);
  }
  const bool root = node.parent < 0;
  (*lanes)[0].step(sums, root ? results : std::vector{to(node.parent, {}, 0)},
                   {.finish = root, .after = after});
}

/// Where the children of lane 0, and this rank, want the result.
inline std::vector<Operand> kported_places(const KportedNode& node) {
  std::vector<Operand> places;
  for (int child : node.lanes[0]) places.push_back(to(child, out(0), 0));
  places.push_back(out(0));
  return places;
}

/// Sends the output to the children of the other lanes, once step `done` of lane 0 has put it there.
inline void kported_spread(std::vector<Builder::LaneBuilder>* lanes, const KportedNode& node, StepId done) {
  for (std::size_t i = 1; i < node.lanes.size(); ++i) {
    std::vector<Operand> places;
    for (int child : node.lanes[i]) places.push_back(to(child, out(0), 0));
    (*lanes)[i].step(std::vector{out(0)}, places, {.after = {&done, 1}});
  }
}

/// As knomial_costs(), with k messages at once.
inline TreeCosts kported_costs(Subtree tree, int k, std::map<int, TreeCosts>& known) {
  TreeCosts costs;
  const std::vector<Subtree> children = knomial_children(tree, k + 1);
  costs.children = costs.neighbours = costs.head_children = static_cast<int>(children.size());
  std::vector<std::vector<int>> arrivals(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < children.size(); ++i) {
    const int size = children[i].size(), lane = static_cast<int>(i) % k;
    if (!known.contains(size)) {
      const TreeCosts found = kported_costs({0, 0, size}, k, known);
      known[size] = found;
    }
    const TreeCosts& below = known[size];
    arrivals[lane].push_back(below.up + 1);
    costs.down = std::max(costs.down, static_cast<int>(std::ssize(arrivals[lane])) + below.down);
    costs.children = std::max(costs.children, below.children);
    costs.neighbours = std::max({costs.neighbours, below.head_children + 1, below.neighbours});
  }
  for (std::vector<int>& of_lane : arrivals) {
    std::sort(of_lane.begin(), of_lane.end());
    int free = 0;
    for (int arrival : of_lane) free = std::max(free + 1, arrival);
    costs.up = std::max(costs.up, free);
  }
  return costs;
}
inline TreeCosts kported_costs(const Topology& topology, int ranks, int root) {
  std::map<int, TreeCosts> known;
  return kported_costs({root, 0, ranks}, KportedNode::ports(topology, ranks), known);
}

}  // namespace tamaki
