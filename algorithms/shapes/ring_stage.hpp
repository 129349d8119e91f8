#pragma once
// One ring among some ranks, as a stage of a larger schedule: each of its `size` members ends with
// (reduce-scatter) or starts with (allgather) its part of a range of chunks.

#include <algorithm>
#include <span>

#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

struct RingStage {
  int size = 2;                // members, at least 2
  int own = 0;                 // this rank's number among them
  int way = 1;                 // messages go from member i to member i + way
  int next = 0, previous = 0;  // ranks
  int channel = kLaneChannel;
  int begin = 0;  // of the range; divisible by size * width
  int width = 1;  // chunks of a part; member i's is [begin + i * width, begin + (i + 1) * width)
  /// Of every step: one whose chunks are all empty is skipped, and orders nothing for those after it.
  std::span<const StepId> after = {};

  int part(int member) const { return begin + wrap(member % size, size) * width; }
};

enum class HeldIn { input, output };
enum class Finish { no, yes };

/// The first `parts` parts that a ring's reduce-scatter uses (own - way, own - 2 way, ..., own) are there
/// once the steps `after` are done.
struct Ready {
  int parts = 0;
  std::span<const StepId> after = {};
};

/// Adds up the members' ranges; member i's part ends in its output. What is added lies in `held`, in the
/// order of `ready` (ending with all parts; empty: all after r.after). size - 1 messages.
inline StepId ring_reduce_scatter(Builder::LaneBuilder& lane, const RingStage& r, HeldIn held,
                                  Finish finish, std::span<const Ready> ready = {}) {
  const auto place = [&](int member, int stride = 0) {
    return held == HeldIn::input ? in(r.part(member), stride) : out(r.part(member), stride);
  };
  const Operand arrives = from(r.previous, r.channel), leaves = to(r.next, {}, r.channel);
  const Ready at_once = {r.size, r.after};
  if (ready.empty()) ready = {&at_once, 1};
  lane.send(place(r.own - r.way), leaves, {.width = r.width, .after = ready.front().after});
  int used = 1;
  for (const Ready& turn : ready) {
    const int messages = std::min(turn.parts, r.size - 1) - used;
    if (messages <= 0) continue;
    const Operand first = place(r.own - (used + 1) * r.way, -r.way * r.width);
    lane.repeat(messages, r.size * r.width, [&] {
      lane.step({arrives, first}, {leaves}, {.width = r.width, .after = turn.after});
    });
    used += messages;
  }
  return lane.step({arrives, place(r.own)}, {out(r.part(r.own))},
                   {.width = r.width, .finish = finish == Finish::yes, .after = ready.back().after});
}

/// Gives the members' parts, each in its member's output, to all. size - 1 messages.
inline StepId ring_allgather(Builder::LaneBuilder& lane, const RingStage& r) {
  const Operand mine = out(r.part(r.own)), first = out(r.part(r.own - r.way), -r.way * r.width);
  const Operand arrives = from(r.previous, r.channel);
  lane.send(mine, to(r.next, mine, r.channel), {.width = r.width, .after = r.after});
  lane.repeat(r.size - 2, r.size * r.width, [&] {
    lane.step({arrives}, {to(r.next, first, r.channel), first}, {.width = r.width, .after = r.after});
  });
  return lane.recv(arrives, out(r.part(r.own + r.way)), {.width = r.width, .after = r.after});
}

}  // namespace tamaki
