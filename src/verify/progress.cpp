#include "verify/progress.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tamaki::proof {
namespace {

enum class Wait : std::uint8_t { none, message, room, dependency };

struct LaneState {
  std::int64_t done = 0;  // steps, over all slices
  std::int64_t all = 0;
  Wait wait = Wait::none;
  std::int32_t on = -1;           // FIFO, or node of a dependency
  std::int32_t resume = 0;        // operands before this one are ready
  std::int32_t next_waiter = -1;  // list of lanes that wait for the same thing
};

class Runner {
 public:
  Runner(const Flat& flat, int slots, int slices, Progress* progress)
      : flat_(flat),
        slots_(slots),
        slices_(slices),
        progress_(*progress),
        lanes_(flat.lanes.size()),
        queue_(flat.fifos.size() * slots),
        head_(flat.fifos.size()),
        held_(flat.fifos.size()),
        for_message_(flat.fifos.size(), -1),
        for_room_(flat.fifos.size(), -1),
        for_lane_(flat.lanes.size(), -1) {
    progress_.order.reserve(flat.nodes.size());
    progress_.match.assign(flat.operands.size(), -1);
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      lanes_[l].all = std::int64_t{slices} * (flat.lanes[l].end - flat.lanes[l].begin);
      ready_.push_back(static_cast<std::int32_t>(l));
    }
  }

  bool run() {
    std::vector<std::int32_t> round;
    while (!ready_.empty()) {
      round.swap(ready_);
      for (std::int32_t lane : round) run_lane(lane);
      round.clear();
    }
    return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneState& s) { return s.done == s.all; });
  }

  void explain(std::vector<Finding>* findings) const {
    // Follow who waits for whom from the first lane that is stuck until a lane comes up twice.
    std::vector<std::int32_t> seen(lanes_.size(), -1), path;
    std::int32_t lane = -1;
    for (std::size_t l = 0; l < lanes_.size() && lane < 0; ++l)
      if (lanes_[l].done < lanes_[l].all) lane = static_cast<std::int32_t>(l);
    while (lane >= 0 && seen[lane] < 0) {
      seen[lane] = static_cast<std::int32_t>(path.size());
      path.push_back(lane);
      lane = waits_for(lane);
    }
    std::size_t stuck = 0;
    for (const LaneState& s : lanes_) stuck += s.done < s.all;
    if (lane >= 0) path.erase(path.begin(), path.begin() + seen[lane]);
    std::string text = fmt::format("deadlock: {} of {} lanes are stuck with {} slots a FIFO; ", stuck,
                                   lanes_.size(), slots_);
    text += lane >= 0 ? "the cycle is:" : "the chain of waits is:";
    const std::size_t shown = std::min<std::size_t>(path.size(), 16);
    for (std::size_t i = 0; i < shown; ++i) text += "\n    " + reason(path[i]);
    if (shown < path.size()) text += fmt::format("\n    ... {} more", path.size() - shown);
    if (lane >= 0)
      text += fmt::format("\n    which is the first again (rank {} lane {})", flat_.lanes[lane].rank,
                          flat_.lanes[lane].number);
    findings->push_back({.text = std::move(text)});
  }

 private:
  std::int32_t node_at(std::int32_t lane) const {
    const FlatLane& l = flat_.lanes[lane];
    return l.begin + static_cast<std::int32_t>(lanes_[lane].done % (l.end - l.begin));
  }
  std::int64_t slice_of(std::int32_t lane) const {
    return lanes_[lane].done / (flat_.lanes[lane].end - flat_.lanes[lane].begin);
  }

  void block(std::int32_t lane, Wait wait, std::int32_t on, std::int32_t& list) {
    LaneState& s = lanes_[lane];
    s.wait = wait;
    s.on = on;
    s.next_waiter = list;
    list = lane;
  }
  void wake(std::int32_t& list) {
    for (std::int32_t lane = list; lane >= 0;) {
      const std::int32_t next = lanes_[lane].next_waiter;
      lanes_[lane].wait = Wait::none;
      ready_.push_back(lane);
      lane = next;
    }
    list = -1;
  }

  bool dependencies_met(std::int32_t lane, std::int32_t node) {
    const Step& step = *flat_.nodes[node].step;
    const Program& program = flat_.program_of(node);
    for (int i = 0; i < step.dependencies; ++i) {
      const std::int32_t target = flat_.node_of(program.dependencies[step.first_dependency + i], node);
      const std::int32_t other = flat_.nodes[target].lane;
      const FlatLane& o = flat_.lanes[other];
      if (lanes_[other].done > slice_of(lane) * (o.end - o.begin) + (target - o.begin)) continue;
      block(lane, Wait::dependency, target, for_lane_[other]);
      return false;
    }
    return true;
  }

  bool operands_ready(std::int32_t lane, std::int32_t node) {
    const Node& n = flat_.nodes[node];
    LaneState& s = lanes_[lane];
    // With lanes that share a FIFO, what was there may be gone.
    for (int k = flat_.shared_fifos ? 0 : s.resume; k < n.step->sources + n.step->destinations; ++k) {
      const std::int32_t fifo = flat_.operands[n.first_operand + k].fifo;
      s.resume = k;
      if (fifo < 0) continue;
      const bool source = k < n.step->sources;
      if (source && held_[fifo] == 0) return block(lane, Wait::message, fifo, for_message_[fifo]), false;
      if (!source && held_[fifo] == slots_) return block(lane, Wait::room, fifo, for_room_[fifo]), false;
    }
    s.resume = 0;
    return true;
  }

  void run_lane(std::int32_t lane) {
    LaneState& s = lanes_[lane];
    while (s.done < s.all) {
      const std::int32_t node = node_at(lane);
      if (!dependencies_met(lane, node) || !operands_ready(lane, node)) return;
      const Node& n = flat_.nodes[node];
      const bool first_slice = slice_of(lane) == 0;
      for (int k = 0; k < n.step->sources + n.step->destinations; ++k) {
        const std::int32_t operand = n.first_operand + k, fifo = flat_.operands[operand].fifo;
        if (fifo < 0) continue;
        std::int32_t* slots = queue_.data() + std::size_t(fifo) * slots_;
        if (k < n.step->sources) {
          const std::int32_t sent = slots[head_[fifo]];
          head_[fifo] = static_cast<std::uint16_t>((head_[fifo] + 1) % slots_);
          --held_[fifo];
          if (first_slice) progress_.match[operand] = sent, progress_.match[sent] = operand;
          wake(for_room_[fifo]);
        } else {
          slots[(head_[fifo] + held_[fifo]) % slots_] = operand;
          ++held_[fifo];
          wake(for_message_[fifo]);
        }
      }
      if (first_slice) progress_.order.push_back(node);
      ++s.done;
      wake(for_lane_[lane]);
    }
  }

  std::int32_t waits_for(std::int32_t lane) const {
    const LaneState& s = lanes_[lane];
    if (s.wait == Wait::dependency) return flat_.nodes[s.on].lane;
    if (s.wait == Wait::none) return -1;
    const Fifo& f = flat_.fifos[s.on];
    const std::int32_t user = s.wait == Wait::message ? f.sender : f.receiver;
    if (user != kSeveral) return user;
    // The first lane of that rank that is stuck before such a step.
    const std::int32_t rank = s.wait == Wait::message ? f.source : f.destination;
    for (std::int32_t l = flat_.first_lane[rank]; l < static_cast<std::int32_t>(lanes_.size()); ++l)
      if (flat_.lanes[l].rank == rank && lanes_[l].done < lanes_[l].all && l != lane) return l;
    return -1;
  }

  std::string reason(std::int32_t lane) const {
    const LaneState& s = lanes_[lane];
    if (s.done == s.all)
      return fmt::format("rank {} lane {}, which has ended", flat_.lanes[lane].rank,
                         flat_.lanes[lane].number);
    std::string text = flat_.describe(node_at(lane));
    if (slices_ > 1) text += fmt::format(" of slice {}", slice_of(lane));
    if (s.wait == Wait::dependency) return text + " waits for " + flat_.describe(s.on);
    return text + (s.wait == Wait::message ? " waits for a message of " : " waits for room in the FIFO ") +
           flat_.describe_fifo(s.on);
  }

  const Flat& flat_;
  const int slots_, slices_;
  Progress& progress_;
  std::vector<LaneState> lanes_;
  std::vector<std::int32_t> queue_;  // operands that sent, `slots_` for each FIFO
  std::vector<std::uint16_t> head_, held_;
  std::vector<std::int32_t> for_message_, for_room_, for_lane_;  // first lane that waits
  std::vector<std::int32_t> ready_;
};

bool counts_match(const Flat& flat, std::vector<Finding>* findings, std::size_t limit) {
  bool good = true;
  for (const Fifo& f : flat.fifos) {
    if (f.sends == f.receives) continue;
    good = false;
    if (findings->size() >= limit) break;
    findings->push_back(
        {f.sends > f.receives ? f.destination : f.source, -1, -1,
         fmt::format("rank {} sends {} messages to rank {} on channel {}, which receives {}", f.source,
                     f.sends, f.destination, f.channel, f.receives)});
  }
  return good;
}

}  // namespace

bool run_to_end(const Flat& flat, int slots, int slices, Progress* progress, std::vector<Finding>* findings,
                std::size_t limit) {
  if (!counts_match(flat, findings, limit)) return false;
  Runner runner(flat, slots, slices, progress);
  if (runner.run()) return true;
  runner.explain(findings);
  return false;
}

}  // namespace tamaki::proof
