#include "algorithms/shapes/level_exchange.hpp"

#include <algorithm>
#include <string>

#include "algorithms/shapes/double_tree.hpp"
#include "algorithms/shapes/ring_stage.hpp"

namespace tamaki {
namespace {

/// Parts of each level; those of the trees are two.
std::vector<int> parts_of(const Hierarchy& hierarchy, Across across) {
  std::vector<int> parts = hierarchy.owners();
  if (across == Across::trees) parts.back() = 2;
  return parts;
}

/// Chunks of a part at each level.
std::vector<int> widths_of(const std::vector<int>& owners) {
  std::vector<int> widths(owners.size(), 1);
  for (std::size_t k = owners.size() - 1; k > 0; --k) widths[k - 1] = widths[k] * owners[k];
  return widths;
}

/// Adds up the chunks `begin` and `begin + 1` of the members on a tree each and hands out the results;
/// channels from `channel` on. The last step of each tree.
std::vector<StepId> trees_across(Builder* b, const Level& level, int channel, int begin, HeldIn held,
                                 Finish finish, const std::vector<StepId>& after) {
  const int size = static_cast<int>(level.members.size());
  std::vector<StepId> last;
  for (int tree : {0, 1}) {
    const BinaryNode node = double_tree_node(size, tree, best_second_tree(size), level.own + 1);
    const int up = channel + 2 * tree, down = up + 1;
    const auto member = [&](int place) { return level.members[place - 1]; };
    const Operand result = out(begin + tree);
    std::vector<Operand> sources = {held == HeldIn::input ? in(begin + tree) : out(begin + tree)}, places;
    for (int child : {node.left, node.right}) {
      if (child == 0) continue;
      sources.push_back(from(member(child), up));
      places.push_back(to(member(child), result, down));
    }
    places.push_back(result);
    auto lane = b->lane();
    if (node.parent == 0) {
      last.push_back(lane.step(sources, places, {.finish = finish == Finish::yes, .after = after}));
      continue;
    }
    lane.step(sources, std::vector{to(member(node.parent), {}, up)}, {.after = after});
    last.push_back(lane.step(std::vector{from(member(node.parent), down)}, places));
  }
  return last;
}

/// Parts [begin, begin + width) of a ring across the groups that go through the level below at once; with
/// those before it they are the first `parts` that the ring uses, or makes.
struct Piece {
  int begin = 0, width = 0, parts = 0;
};

/// The parts of a ring of `size` in the order first, first - 1, ... (modulo size) as `pieces` pieces, and
/// one more where the numbers begin anew. One: all of them as they lie.
std::vector<Piece> pieces_of(int size, int first, int pieces) {
  if (pieces == 1) return {{0, size, size}};
  std::vector<int> cuts = {wrap(first, size) + 1};
  for (int i = 1; i <= pieces; ++i) cuts.push_back(static_cast<int>(std::int64_t{i} * size / pieces));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Piece> made;
  int before = 0;
  for (const int cut : cuts) {
    if (cut > before) made.push_back({wrap(first - cut + 1, size), cut - before, cut});
    before = cut;
  }
  return made;
}

/// Of level_allreduce(): whether the level below the last moves its parts in pieces.
bool in_pieces(const Hierarchy& hierarchy, const Problem& problem, Across across) {
  return problem.pieces > 1 && across == Across::ring && hierarchy.hosts() > 1;
}

/// What the streams of a rank have in common.
struct Frame {
  const Hierarchy& hierarchy;
  int rank = 0;
  std::vector<Level> levels;
  std::vector<int> widths;  // chunks of a part, of each level
  Across across = Across::ring;
  int pieces = 1;  // of each part at the level below the last

  int last() const { return hierarchy.levels() - 1; }
  std::vector<Piece> pieces_at(int level, int first_part) const {
    if (level != last() - 1 || pieces == 1) return {{0, widths[level], 0}};
    return pieces_of(hierarchy.hosts(), first_part, pieces);
  }
};

/// One of the streams of a rank: chunks from `first` on, channels from `channel` on. It begins after
/// `after` (a step of the stream before, or none), which it replaces by the end of its own first level:
/// streams in step with each other would all be inside hosts, and then all between hosts, at the same time.
void add_stream(Builder* b, const Frame& frame, int first, int channel, bool alone,
                std::vector<StepId>* turn) {
  const std::vector<Level>& levels = frame.levels;
  const int last = frame.last(), depth = last + 1, host = frame.hierarchy.host_of(frame.rank);
  std::vector<Builder::LaneBuilder> up, down;
  for (int k = 0; k < depth; ++k) up.push_back(b->lane(channel + k));
  for (int k = 0; k < last; ++k) down.push_back(b->lane(channel + depth + k));
  // A lane of their own for the pieces that leave: the next is on its way while one is added up.
  Builder::LaneBuilder leaving = frame.pieces > 1 ? b->lane(channel + last - 1) : up[0];
  if (alone) up[0].copy(in(first), out(first), {.width = frame.widths[0], .finish = true});

  int finishing = 0;  // the level that adds the last contributions
  for (int k = 0; k < static_cast<int>(levels.size()); ++k)
    if (!levels[k].alone()) finishing = k;
  HeldIn held = HeldIn::input;
  std::vector<int> begin(1, first);   // of the range that a level works on
  std::vector<StepId> after = *turn;  // what made it: one step, or none
  std::vector<Piece> pieces;          // in which it was made, by the steps `made`
  std::vector<StepId> made;
  for (int k = 0; k < static_cast<int>(levels.size()); ++k) {
    const Level& level = levels[k];
    const int width = frame.widths[k];
    const auto part = [&](int owner) { return begin[k] + owner * width; };
    begin.push_back(part(level.own));
    if (level.alone()) continue;
    const Finish finish = k == finishing ? Finish::yes : Finish::no;
    if (k == last && frame.across == Across::trees) {
      after = trees_across(b, level, channel + 2 * depth, begin[k], held, finish, after);
      break;
    }
    if (k == last) {
      const int size = static_cast<int>(level.members.size());
      const RingStage ring = {.size = size,
                              .own = level.own,
                              .next = level.members[(level.own + 1) % size],
                              .previous = level.members[(level.own + size - 1) % size],
                              .begin = begin[k],
                              .width = width,
                              .after = after};
      std::vector<Ready> ready;
      for (std::size_t i = 0; i < made.size() && made.size() > 1; ++i)
        ready.push_back({pieces[i].parts, {&made[i], 1}});
      ring_reduce_scatter(up[k], ring, held, finish, ready);
      after = {ring_allgather(up[k], ring)};
      break;
    }
    pieces = frame.pieces_at(k, host - 1);
    made.clear();
    Builder::LaneBuilder& sender = pieces.size() > 1 ? leaving : up[k];
    for (const Piece& piece : pieces) {
      const auto place = [&](int owner) {
        const int chunk = part(owner) + piece.begin;
        return held == HeldIn::input ? in(chunk) : out(chunk);
      };
      for (int owner : targets_of(level.own, level.owners))
        sender.send(place(owner), to(level.members[owner]), {.width = piece.width, .after = after});
      if (!level.owns()) continue;
      std::vector<Operand> sources;
      for (int m = 0; m < static_cast<int>(level.members.size()); ++m)
        sources.push_back(m == level.own ? place(level.own) : from(level.members[m]));
      made.push_back(up[k].step(sources, std::vector{out(part(level.own) + piece.begin)},
                                {.width = piece.width, .finish = finish == Finish::yes, .after = after}));
    }
    if (!level.owns()) continue;
    if (k == 0) *turn = {made.front()};
    after = {made.back()};
    held = HeldIn::output;
  }
  for (int k = std::min(static_cast<int>(levels.size()), last) - 1; k >= 0; --k) {
    const Level& level = levels[k];
    if (level.alone()) continue;
    const int size = static_cast<int>(level.members.size());
    StepId done{};
    pieces = frame.pieces_at(k, host);
    for (const Piece& piece : pieces) {
      if (level.owns()) {
        const Operand mine = out(begin[k + 1] + piece.begin);
        std::vector<Operand> places;
        for (int i = 1; i < size; ++i)
          places.push_back(to(level.members[(level.own + i) % size], mine, channel + depth + k));
        // The ring across makes a part with each of its last steps.
        std::vector<StepId> there = after;
        if (pieces.size() > 1) there[0].step -= frame.hierarchy.hosts() - piece.parts;
        done = down[k].step(std::vector{mine}, places, {.width = piece.width, .after = there});
      }
      for (int i = 1; i < size; ++i) {
        const int owner = (level.own - i + size) % size;
        if (owner >= level.owners) continue;
        done = down[k].recv(from(level.members[owner], channel + depth + k),
                            out(begin[k] + owner * frame.widths[k] + piece.begin), {.width = piece.width});
      }
    }
    after = {done};
  }
}

}  // namespace

Program level_allreduce(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank,
                        Across across) {
  const std::vector<int> owners = parts_of(hierarchy, across), widths = widths_of(owners);
  const int depth = hierarchy.levels();
  const bool split = in_pieces(hierarchy, problem, across);
  int widest = widths[0];
  if (split && depth == 2) widest = (hierarchy.hosts() + problem.pieces - 1) / problem.pieces;
  Builder b({.algorithm = std::string(name),
             .collective = Collective::allreduce,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = problem.lanes * widths[0] * owners[0],
             .max_width = widest});
  const Frame frame = {hierarchy, rank,   hierarchy.levels_of(rank),
                       widths,    across, split ? problem.pieces : 1};
  // Of a stream: one channel for each level upwards and downwards, and four of the trees.
  std::vector<StepId> turn;
  for (int s = 0; s < problem.lanes; ++s)
    add_stream(&b, frame, s * widths[0] * owners[0], s * (2 * depth + 4), problem.ranks == 1, &turn);
  return b.take();
}

ClosedForm level_allreduce_form(const Hierarchy& hierarchy, const Problem& problem, Across across) {
  const std::vector<int> owners = parts_of(hierarchy, across), widths = widths_of(owners);
  const int p = problem.ranks, last = hierarchy.levels() - 1;
  std::vector<std::vector<Level>> levels;
  for (int r = 0; r < p; ++r) levels.push_back(hierarchy.levels_of(r));
  std::vector<std::int64_t> at(static_cast<std::size_t>(p), 0), sent = at, received = at;
  // Calls body(rank, level) once for each group of level k: for the group's first member.
  const auto each_group = [&](int k, const auto& body) {
    for (int r = 0; r < p; ++r)
      if (static_cast<int>(levels[r].size()) > k && levels[r][k].own == 0 && !levels[r][k].alone())
        body(levels[r][k]);
  };
  const auto times = [&](const Level& level) {
    std::vector<std::int64_t> start;
    for (int m : level.members) start.push_back(at[m]);
    return start;
  };
  const auto set = [&](const Level& level, const std::vector<std::int64_t>& done) {
    for (std::size_t i = 0; i < level.members.size(); ++i) at[level.members[i]] = done[i];
  };
  for (int k = 0; k < last; ++k)
    each_group(k, [&](const Level& level) {
      set(level, time_to_owners(times(level), level.owners));
      const int size = static_cast<int>(level.members.size());
      for (int m = 0; m < size; ++m) {  // there, and back
        const std::int64_t others = level.owners - (m < level.owners),
                           owned = m < level.owners ? size - 1 : 0;
        sent[level.members[m]] += (others + owned) * widths[k];
        received[level.members[m]] += (others + owned) * widths[k];
      }
    });
  each_group(last, [&](const Level& level) {
    if (across == Across::trees) {
      const int members = static_cast<int>(level.members.size());
      for (int m = 0; m < members; ++m)
        for (int tree : {0, 1}) {
          const BinaryNode node = double_tree_node(members, tree, best_second_tree(members), m + 1);
          const int neighbours = (node.parent != 0) + (node.left != 0) + (node.right != 0);
          sent[level.members[m]] += neighbours, received[level.members[m]] += neighbours;
        }
      return;
    }
    const std::int64_t size = std::ssize(level.members), moved = 2 * (size - 1);
    std::vector<std::int64_t> start = times(level);
    const std::int64_t slowest = *std::max_element(start.begin(), start.end());
    set(level, std::vector<std::int64_t>(start.size(), slowest + moved));
    for (int m : level.members) sent[m] += moved, received[m] += moved;
  });
  for (int k = last - 1; k >= 0; --k)
    each_group(k, [&](const Level& level) { set(level, time_from_owners(times(level), level.owners)); });
  // Streams begin one after the other, at times that depend on the levels, and pieces overlap with the
  // ring.
  const bool stated = problem.lanes == 1 && !in_pieces(hierarchy, problem, across) &&
                      (across == Across::ring || hierarchy.hosts() == 1);
  return {.rounds = stated ? *std::max_element(at.begin(), at.end()) : ClosedForm::kNotStated,
          .chunks_sent = problem.lanes * *std::max_element(sent.begin(), sent.end()),
          .chunks_received = problem.lanes * *std::max_element(received.begin(), received.end()),
          .chunks = std::int64_t{problem.lanes} * widths[0] * owners[0]};
}

}  // namespace tamaki
