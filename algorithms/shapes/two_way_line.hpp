#pragma once
// One dimension of a torus or mesh as a stage of a larger schedule, both ways at once: of a ring each
// member's part goes half way round in each direction, of a line it goes to both ends. So a ring takes half
// the messages one after the other that a ring in one direction does.

#include <algorithm>
#include <vector>

#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

struct TwoWayLine {
  int size = 2;  // members, at least 2
  int own = 0;   // this rank's number among them
  bool ring = true;
  int next = 0, previous = 0;  // ranks; where a line ends: not used
  int begin = 0, width = 1;    // member i's part is chunks [begin + i * width, begin + (i + 1) * width)
  std::vector<StepId> after;   // of every step: steps on empty chunks are skipped, and order nothing

  int part(int member) const { return begin + (member + size) % size * width; }
  /// Members on that side whose parts this rank takes in (allgather) or sends towards (reduce-scatter).
  int reach(int way) const {
    if (ring) return way > 0 ? size / 2 : (size - 1) / 2;
    return way > 0 ? size - 1 - own : own;
  }
  bool has(int way) const { return ring ? reach(way) > 0 : way > 0 ? own < size - 1 : own > 0; }
  int peer(int way) const { return way > 0 ? next : previous; }
};

/// Dimension `dimension` of a row-major grid, as the rank sees it; parts are of all dimensions behind it.
/// Two points are a ring: half way round is the other one.
inline TwoWayLine two_way_line(const Grid& grid, int dimension, int rank, std::vector<StepId> after) {
  const int width = grid.stride(dimension), size = grid.size(dimension),
            own = grid.coordinate(rank, dimension);
  return {.size = size,
          .own = own,
          .ring = size == 2 || is_ring(grid, dimension),
          .next = grid.with(rank, dimension, own + 1),
          .previous = grid.with(rank, dimension, own - 1),
          .begin = rank - rank % (width * size),
          .width = width,
          .after = std::move(after)};
}

struct TwoWayCosts {
  std::int64_t rounds = 0;  // messages, one after the other, of all dimensions
  std::int64_t most_chunks =
      0;  // that the rank in the middle sends (allgather) or takes in (reduce-scatter)
};
inline TwoWayCosts two_way_costs(const Grid& grid) {
  TwoWayCosts costs;
  for (int d = 0; d < grid.dimensions(); ++d) {
    const int size = grid.size(d);
    const bool ring = size == 2 || is_ring(grid, d);
    costs.rounds += ring ? size / 2 : size - 1;
    costs.most_chunks += std::int64_t{grid.stride(d)} * (ring ? size - 1 : size + 1);
  }
  return costs;
}

/// Gives the parts, each in its member's output, to all; the own part is sent from `mine`, and, if it is
/// not there, put there. Lane `up` sends to `next`, lane `down` to `previous`. The last steps of each.
inline std::vector<StepId> two_way_allgather(Builder::LaneBuilder* up, Builder::LaneBuilder* down,
                                             const TwoWayLine& line, Operand mine) {
  std::vector<StepId> last;
  for (int way : {1, -1}) {
    Builder::LaneBuilder* lane = way > 0 ? up : down;
    if (lane == nullptr) continue;
    const int received = line.reach(line.ring ? way : -way);
    const bool sends = line.has(way), takes = line.has(line.ring ? way : -way);
    const Operand own = out(line.part(line.own)), leaves = to(line.peer(way), own);
    const Operand first = out(line.part(line.own - way), -way * line.width);
    const StepOptions options = {.width = line.width, .after = line.after};
    std::vector<Operand> places;
    if (sends) places.push_back(leaves);
    if (way > 0 && mine.buffer == Buffer::input) places.push_back(own);
    StepId step;
    if (!places.empty()) step = lane->step(std::vector{mine}, places, options);
    const int relayed = !sends ? 0 : line.ring ? received - 1 : received;
    if (takes) {
      const Operand arrives = from(line.peer(-way));
      if (relayed > 0)
        lane->repeat(relayed, line.size * line.width, [&] {
          step = lane->step({arrives}, {to(line.peer(way), first), first}, options);
        });
      // The last ones stay.
      for (int i = relayed; i < received; ++i)
        step = lane->recv(arrives, out(line.part(line.own - way * (i + 1))), options);
    }
    if (relayed > 1 && relayed == received) step.step += relayed - 1;
    if (!places.empty() || takes) last.push_back(step);
  }
  return last;
}

/// Adds up the members' parts; the own one ends in `result`. What is added lies in `held(member, stride)`,
/// whose size is that of input chunk `in(part(member))`. Lane `up` sends to `next`, lane `down` to
/// `previous`; what comes from `next` is added first, in `partial`. The step that completes the result.
template <class Held>
StepId two_way_reduce_scatter(Builder::LaneBuilder* up, Builder::LaneBuilder* down, const TwoWayLine& line,
                              const Held& held, Operand partial, Operand result) {
  StepId done{};
  std::vector<StepId> after = line.after;
  bool in_partial = false;
  for (int way : {-1, 1}) {
    Builder::LaneBuilder* lane = way > 0 ? up : down;
    if (lane == nullptr) continue;
    const int targets = line.reach(way);
    const bool takes = line.has(line.ring ? way : -way);
    const int begun = line.ring ? std::min(1, targets) : takes ? 0 : targets;  // sums that start here
    const Operand arrives = from(line.peer(-way)), leaves = to(line.peer(way));
    const auto options = [&](int member, int stride, std::span<const StepId> behind) {
      return StepOptions{.width = line.width, .after = behind, .size_of = in(line.part(member), stride)};
    };
    // Farthest first.
    int member = line.own + way * targets;
    for (int i = 0; i < begun; ++i, member -= way)
      lane->send(held(member, 0), leaves, options(member, 0, line.after));
    if (targets > begun)
      lane->repeat(targets - begun, line.size * line.width, [&] {
        lane->step({arrives, held(member, -way * line.width)}, {leaves},
                   options(member, -way * line.width, line.after));
      });
    if (!takes) continue;
    const bool more = way < 0 && up != nullptr && line.has(line.ring ? 1 : -1);
    StepOptions last = options(line.own, 0, after);
    last.finish = !more && result.buffer == Buffer::output;
    done = lane->step({arrives, in_partial ? partial : held(line.own, 0)}, {more ? partial : result}, last);
    in_partial = more;
    after.push_back(done);
  }
  return done;
}

}  // namespace tamaki
