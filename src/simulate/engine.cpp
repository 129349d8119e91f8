#include "simulate/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tamaki::simulation {
namespace {

// Events that are no further apart happen at one time: what rounding leaves between equals.
constexpr Ticks kTogether = 16;
constexpr double kLongest = 4e18;  // ticks

}  // namespace

Engine::Engine(const Network& network, const Compiled& compiled, const SimulationOptions& options, double tick_s)
    : network_(network),
      compiled_(compiled),
      options_(options),
      tick_s_(tick_s),
      lanes_(compiled.lanes.size()),
      fifos_(compiled.fifos.size()),
      processor_free_(static_cast<std::size_t>(compiled.ranks)),
      engine_free_(static_cast<std::size_t>(network.engine_count())),
      rank_end_(static_cast<std::size_t>(compiled.ranks)) {
  for (std::int32_t link = 0; link < network.links(); ++link) fair_.add_link(network.capacity(link));
  const bool works = std::any_of(compiled.steps.begin(), compiled.steps.end(), [](const CompiledStep& s) { return s.work_s > 0; });
  for (std::int32_t rank = 0; works && rank < compiled.ranks; ++rank) {
    const std::int32_t own[] = {fair_.add_link(1)};
    work_group_.push_back(fair_.add_group(own));
    groups_.emplace_back();
    fifo_of_group_.push_back(-1);
  }
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].block = compiled.lanes[l].first_block;
    engine_of_lane_.push_back(network.engine(compiled.lanes[l].rank, compiled.lanes[l].number));
  }
  const NetworkModel& model = network.model();
  step_ticks_ = ticks(model.step_s);
  send_ticks_ = ticks(model.send_overhead_s);
  receive_ticks_ = ticks(model.receive_overhead_s);
  rendezvous_ticks_ = ticks(model.rendezvous_s);
  rounding_ = std::max(0.0, options.rounding);
}

Ticks Engine::ticks(double seconds) {
  const double count = seconds / tick_s_;
  if (count + static_cast<double>(now_) + static_cast<double>(skipped_) > kLongest) {
    overflowed_ = true;
    return 0;
  }
  return std::llround(count);
}

Result<Simulation> Engine::run() {
  for (std::size_t l = 0; l < lanes_.size(); ++l) wake(static_cast<std::int32_t>(l));
  run_ready();
  settle();
  std::vector<Event> events;
  while (!queue_.empty() && !overflowed_ && !error_) {
    now_ = std::max(now_, queue_.next());
    events.clear();
    queue_.take(now_ + kTogether, &events);
    for (const Event& event : events) process(event);
    run_ready();
    settle();
    if (anchor_turned_) look_for_period();
  }
  if (error_) return tl::unexpected<Error>(*error_);
  if (overflowed_) return fail(Code::invalid_argument, "the simulated time is too long to be counted");
  for (std::size_t l = 0; l < lanes_.size(); ++l)
    if (!done(static_cast<std::int32_t>(l))) return fail(Code::invalid_argument, explain_deadlock());
  return result();
}

void Engine::process(const Event& event) {
  switch (event.kind) {
    case Event::Kind::finish:
      if (groups_[static_cast<std::size_t>(event.id)].version == event.version) end_transfers(event.id);
      break;
    case Event::Kind::arrival: arrive(event.id); break;
    case Event::Kind::resume: wake(event.id); break;
    case Event::Kind::start: start_next(event.id); break;
  }
}

void Engine::wake(std::int32_t lane) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  if (s.in_ready) return;
  s.in_ready = true;
  ready_.push_back(lane);
}

void Engine::run_ready() {
  while (!ready_.empty()) {
    running_.swap(ready_);
    // Lanes of a rank share its processor in one order on all ranks, so that equal ranks stay equal.
    if (step_ticks_ > 0 && !std::is_sorted(running_.begin(), running_.end())) std::sort(running_.begin(), running_.end());
    for (const std::int32_t lane : running_) {
      lanes_[static_cast<std::size_t>(lane)].in_ready = false;
      run_lane(lane);
    }
    running_.clear();
  }
}

void Engine::run_lane(std::int32_t lane) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  const std::int32_t rank = compiled_.lanes[static_cast<std::size_t>(lane)].rank;
  while (!done(lane)) {
    const CompiledStep& step = step_of(s);
    if (s.phase == LaneState::Phase::wait) {
      if (!can_begin(lane, step) || !take_messages(lane, step)) return;
      Ticks then = now_;
      if (step_ticks_ > 0) {
        Ticks& free = processor_free_[static_cast<std::size_t>(rank)];
        free = std::max(free, now_) + step_ticks_;
        then = free;
      }
      then += receive_ticks_ * step.sources;
      s.phase = LaneState::Phase::work;
      if (then > now_) return queue_.push(then, {Event::Kind::resume, lane, 0});
    }
    if (s.phase == LaneState::Phase::work) {
      s.phase = LaneState::Phase::send;
      if (step.work_s > 0) return begin_work(lane, step.work_s);
    }
    complete_step(lane, step);
  }
}

bool Engine::can_begin(std::int32_t lane, const CompiledStep& step) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  for (std::uint32_t i = 0; i < step.dependencies; ++i) {
    const CompiledDependency& d = compiled_.dependencies[step.first_dependency + i];
    LaneState& other = lanes_[static_cast<std::size_t>(d.lane)];
    if (other.completed > s.slice * compiled_.lanes[static_cast<std::size_t>(d.lane)].steps + d.step) continue;
    s.waits_for = d.lane;
    s.next_waiter = other.first_waiter;
    other.first_waiter = lane;
    return false;
  }
  if (options_.room == 0) return true;
  for (std::uint32_t k = step.sources; k < static_cast<std::uint32_t>(step.sources) + step.destinations; ++k) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(compiled_.operands[step.first_fifo + k])];
    if (fifo.outstanding < options_.room) continue;
    fifo.sender = lane;
    return false;
  }
  return true;
}

bool Engine::take_messages(std::int32_t lane, const CompiledStep& step) {
  std::int32_t missing = -1;
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    const std::int32_t number = compiled_.operands[step.first_fifo + k];
    FifoState& fifo = fifos_[static_cast<std::size_t>(number)];
    if (fifo.arrived > 0) continue;
    missing = number;
    fifo.wanted = true;
    if (fifo.asking >= 0 && fifo.started == 0) start_next(std::exchange(fifo.asking, -1));
  }
  if (missing >= 0) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(missing)];
    if (fifo.arrived == 0) {
      fifo.receiver = lane;
      return false;
    }
    return take_messages(lane, step);  // it was empty and free of latency: it has come meanwhile
  }
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(compiled_.operands[step.first_fifo + k])];
    --fifo.arrived;
    --fifo.started;
    fifo.wanted = false;
  }
  return true;
}

void Engine::complete_step(std::int32_t lane, const CompiledStep& step) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(compiled_.operands[step.first_fifo + k])];
    --fifo.outstanding;
    if (fifo.sender >= 0) wake(std::exchange(fifo.sender, -1));
  }
  for (std::uint32_t k = step.sources; k < static_cast<std::uint32_t>(step.sources) + step.destinations; ++k)
    post(lane, compiled_.operands[step.first_fifo + k], step.bytes);
  s.phase = LaneState::Phase::wait;
  ++s.completed;
  advance(lane);
  for (std::int32_t waiter = std::exchange(s.first_waiter, -1); waiter >= 0;) {
    LaneState& w = lanes_[static_cast<std::size_t>(waiter)];
    const std::int32_t next = std::exchange(w.next_waiter, -1);
    w.waits_for = -1;
    ++dependency_wakes_;
    wake(waiter);
    waiter = next;
  }
}

void Engine::advance(std::int32_t lane) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  const CompiledLane& own = compiled_.lanes[static_cast<std::size_t>(lane)];
  if (++s.in_block < compiled_.blocks[s.block].length) return;
  s.in_block = 0;
  if (lane == anchor_) anchor_turned_ = true;
  if (++s.iteration < compiled_.blocks[s.block].times) {
    if (anchor_ < 0 && compiled_.blocks[s.block].times - s.iteration >= 4) anchor_ = lane;
    return;
  }
  if (lane == anchor_) anchor_ = -1;
  s.iteration = 0;
  if (++s.block < own.end_block) return;
  s.block = own.first_block;
  if (++s.slice == options_.slices) finish_rank(own.rank);
}

void Engine::finish_rank(std::int32_t rank) {
  Ticks& end = rank_end_[static_cast<std::size_t>(rank)];
  end = std::max(end, now_ + skipped_);
}

std::string Engine::explain_deadlock() const {
  std::int64_t stuck = 0;
  std::string text;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (done(static_cast<std::int32_t>(l)) || ++stuck > 4) continue;
    const LaneState& s = lanes_[l];
    const CompiledLane& own = compiled_.lanes[l];
    text += fmt::format("; rank {} lane {} step {}", own.rank, own.number, s.completed - s.slice * own.steps);
    if (s.waits_for >= 0) {
      text += fmt::format(" waits for its lane {}", compiled_.lanes[static_cast<std::size_t>(s.waits_for)].number);
      continue;
    }
    const CompiledStep& step = step_of(s);
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(step.sources) + step.destinations; ++k) {
      const std::int32_t number = compiled_.operands[step.first_fifo + k];
      const CompiledFifo& fifo = compiled_.fifos[static_cast<std::size_t>(number)];
      const FifoState& state = fifos_[static_cast<std::size_t>(number)];
      if (state.receiver == static_cast<std::int32_t>(l)) text += fmt::format(" waits for a message from rank {}", fifo.source);
      if (state.sender == static_cast<std::int32_t>(l)) text += fmt::format(" waits for room at rank {}", fifo.destination);
    }
  }
  return fmt::format("deadlock: {} of {} lanes are stuck{}", stuck, lanes_.size(), text);
}

Result<Simulation> Engine::result() {
  Simulation made;
  Ticks last = 0;
  for (const Ticks end : rank_end_) {
    last = std::max(last, end);
    made.rank_seconds.push_back(static_cast<double>(end) * tick_s_);
  }
  made.seconds = static_cast<double>(last) * tick_s_;
  made.messages = messages_;
  made.simulated_messages = messages_ - skipped_messages_;
  made.steps = compiled_.most_in_lane * options_.slices;
  made.link_bytes.assign(static_cast<std::size_t>(network_.links()), 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (fifo_of_group_[g] < 0) continue;
    made.bytes_sent += groups_[g].total;
    for (const std::int32_t link : fair_.links(static_cast<std::int32_t>(g))) made.link_bytes[static_cast<std::size_t>(link)] += groups_[g].total;
  }
  for (std::int32_t link = 0; link < network_.links() && made.seconds > 0; ++link) {
    const double moved = made.link_bytes[static_cast<std::size_t>(link)];
    if (moved <= 0 || moved / network_.capacity(link) / made.seconds <= made.busiest_share * (1 + 1e-9)) continue;
    made.busiest_share = moved / network_.capacity(link) / made.seconds;
    made.busiest_link = link;
  }
  made.rounding = rounding_;
  made.filled = fair_.filled();
  return made;
}

}  // namespace tamaki::simulation
