#include "algorithms/shapes/torus_trees.hpp"

#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// The children of a rank in a tree; each lane of the tree serves another one first, so that they do not
/// all wait for one link.
std::vector<int> children_of(const TorusTrees& trees, int tree, int rank, int lane) {
  std::vector<int> children = trees.children(tree, rank);
  if (!children.empty())
    std::rotate(children.begin(), children.begin() + lane % std::ssize(children), children.end());
  return children;
}

/// Calls body(tree, first, times) for lanes that share the pieces of the trees out in turn. A port serves
/// every so many lanes, and a point has many children in one tree, few in another: each tree's lanes go
/// over all places in turn, so that every port gets its share of every tree.
template <class Body>
void each_lane(const TorusTrees& trees, int pieces, const Body& body) {
  const int count = trees.count(), groups = std::min(pieces, trees.turns(pieces));
  for (int group = 0; group < groups; ++group)
    for (int place = 0; place < count; ++place)
      body((place + count - group % count) % count, group, (pieces - group + groups - 1) / groups);
}

}  // namespace

Program torus_trees_broadcast(const TorusTrees& trees, std::string_view name, const Problem& problem,
                              int rank) {
  const int pieces = problem.pieces;
  Builder b({.algorithm = std::string(name),
             .collective = Collective::broadcast,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root,
             .chunks = trees.count() * pieces});
  each_lane(trees, pieces, [&](int t, int first, int times) {
    const int parent = trees.parent(t, rank), chunk = t * pieces + first,
              by = std::min(pieces, trees.turns(pieces));
    const Operand piece = out(chunk, by);
    std::vector<Operand> places;
    for (int child : children_of(trees, t, rank, first)) places.push_back(to(child, piece));
    places.push_back(piece);
    auto lane = b.lane();
    const Operand source = parent < 0 ? in(chunk, by) : from(parent);
    lane.repeat(times, 0, [&] { lane.step(std::vector{source}, places); });
  });
  return b.take();
}

Program torus_trees_reduce(const TorusTrees& trees, std::string_view name, const Problem& problem,
                           int rank) {
  const int pieces = problem.pieces;
  Builder b({.algorithm = std::string(name),
             .collective = Collective::reduce,
             .ranks = problem.ranks,
             .rank = rank,
             .root = problem.root,
             .chunks = trees.count() * pieces});
  each_lane(trees, pieces, [&](int t, int first, int times) {
    const int parent = trees.parent(t, rank), chunk = t * pieces + first,
              by = std::min(pieces, trees.turns(pieces));
    std::vector<Operand> sources = {in(chunk, by)};
    for (int child : children_of(trees, t, rank, first)) sources.push_back(from(child));
    auto lane = b.lane();
    const Operand result = parent < 0 ? out(chunk, by) : to(parent);
    lane.repeat(times, 0, [&] { lane.step(sources, std::vector{result}, {.finish = parent < 0}); });
  });
  return b.take();
}

Program torus_trees_allreduce(const TorusTrees& trees, std::string_view name, const Problem& problem,
                              int rank) {
  const int pieces = problem.pieces;
  Builder b({.algorithm = std::string(name),
             .collective = Collective::allreduce,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = trees.count() * pieces});
  each_lane(trees, pieces, [&](int t, int first, int times) {
    const int parent = trees.parent(t, rank), chunk = t * pieces + first,
              by = std::min(pieces, trees.turns(pieces));
    const int up = 2 * (first * trees.count() + t), down = up + 1;  // channels
    const Operand piece = out(chunk, by);
    std::vector<Operand> sources = {in(chunk, by)}, places;
    for (int child : children_of(trees, t, rank, first)) {
      sources.push_back(from(child, up));
      places.push_back(to(child, piece, down));
    }
    places.push_back(piece);
    if (parent < 0) {
      auto lane = b.lane();
      lane.repeat(times, 0, [&] { lane.step(sources, places, {.finish = true}); });
      return;
    }
    auto reduction = b.lane();
    reduction.repeat(times, 0, [&] { reduction.step(sources, std::vector{to(parent, {}, up)}); });
    auto results = b.lane();
    results.repeat(times, 0, [&] { results.step(std::vector{from(parent, down)}, places); });
  });
  return b.take();
}

ClosedForm torus_trees_form(const TorusTrees& trees, const Problem& problem) {
  const bool both = problem.collective == Collective::allreduce,
             up = problem.collective == Collective::reduce;
  const TorusTreesCosts costs = torus_trees_costs(trees, problem.ranks, both ? 0 : problem.root);
  const std::int64_t pieces = problem.pieces, chunks = trees.count() * pieces;
  const std::int64_t one = problem.ranks > 1 ? chunks : 0, many = pieces * costs.most_children;
  ClosedForm form{.rounds = ClosedForm::kNotStated, .chunks = chunks};
  if (pieces == 1) form.rounds = both ? costs.up_and_down : up ? costs.up : costs.down;
  form.chunks_sent = both ? pieces * costs.most_neighbours : up ? one : many;
  form.chunks_received = both ? pieces * costs.most_neighbours : up ? many : one;
  return form;
}

}  // namespace tamaki
