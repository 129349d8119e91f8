#pragma once
// What a list of programs costs in messages and chunks, for comparison with an algorithm's closed form.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "schedule/program.hpp"

namespace tamaki::test {

/// What ClosedForm promises, counted in the programs: each lane sends one message at a time and takes in
/// one at a time, a message takes one unit of time, everything else none.
struct Counts {
  std::int64_t rounds = 0, chunks_sent = 0, chunks_received = 0;
};
inline Counts count(const std::vector<Program>& programs) {
  struct LaneTime {
    LaneCursor cursor;
    std::int64_t out_free = 0, in_free = 0, done = 0;
    std::vector<std::int64_t> steps;  // when each was done
  };
  Counts counts;
  std::vector<std::vector<LaneTime>> lanes(programs.size());
  std::map<std::tuple<int, int, int>, std::deque<std::int64_t>> arrivals;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    std::int64_t sent = 0, received = 0;
    for (int l = 0; l < static_cast<int>(programs[r].lanes.size()); ++l) {
      for (LaneCursor cursor(programs[r], l); !cursor.done(); cursor.advance()) {
        const ExpandedStep& step = cursor.current();
        for (int s = 0; s < step.step->sources; ++s)
          if (step.sources[s].kind == Operand::Kind::peer) received += step.step->width;
        for (int d = 0; d < step.step->destinations; ++d)
          if (step.destinations[d].kind == Operand::Kind::peer) sent += step.step->width;
      }
      lanes[r].push_back({.cursor = LaneCursor(programs[r], l), .steps = {}});
    }
    counts.chunks_sent = std::max(counts.chunks_sent, sent);
    counts.chunks_received = std::max(counts.chunks_received, received);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < static_cast<int>(programs.size()); ++r)
      for (LaneTime& lane : lanes[r])
        while (!lane.cursor.done()) {
          const ExpandedStep& step = lane.cursor.current();
          bool ready = true;
          std::int64_t start = lane.done;
          for (int d = 0; d < step.step->dependencies; ++d) {
            const Dependency& need = programs[r].dependencies[step.step->first_dependency + d];
            const auto& others = lanes[r][need.lane].steps;
            if (static_cast<int>(others.size()) <= need.step)
              ready = false;
            else
              start = std::max(start, others[need.step]);
          }
          std::vector<std::int64_t> incoming;
          for (int s = 0; s < step.step->sources && ready; ++s) {
            if (step.sources[s].kind != Operand::Kind::peer) continue;
            const auto& queue = arrivals[{step.sources[s].peer, r, step.sources[s].channel}];
            if (queue.empty())
              ready = false;
            else
              incoming.push_back(queue.front());
          }
          if (!ready) break;
          for (int s = 0; s < step.step->sources; ++s)
            if (step.sources[s].kind == Operand::Kind::peer)
              arrivals[{step.sources[s].peer, r, step.sources[s].channel}].pop_front();
          std::sort(incoming.begin(), incoming.end());
          for (std::int64_t arrival : incoming) {
            lane.in_free = std::max(lane.in_free + 1, arrival);
            start = std::max(start, lane.in_free);
          }
          counts.rounds = std::max(counts.rounds, start);
          for (int d = 0; d < step.step->destinations; ++d) {
            if (step.destinations[d].kind != Operand::Kind::peer) continue;
            lane.out_free = std::max(lane.out_free, start) + 1;
            arrivals[{r, step.destinations[d].peer, step.destinations[d].channel}].push_back(lane.out_free);
          }
          lane.done = start;
          lane.steps.push_back(start);
          lane.cursor.advance();
          moved = true;
        }
  }
  return counts;
}

}  // namespace tamaki::test
