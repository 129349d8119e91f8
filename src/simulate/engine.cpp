#include "simulate/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tamaki::simulation {
namespace {

constexpr double kLongest = 4e18;  // ticks

}  // namespace

Engine::Engine(const Network& network, const Compiled& compiled, const Cells& cells,
               const SimulationOptions& options, double tick_s)
    : network_(network),
      compiled_(compiled),
      cells_(cells),
      options_(options),
      tick_s_(tick_s),
      fifos_(cells.cell_fifos.size()),
      processor_free_(cells.rank.size()),
      cell_end_(cells.rank.size()) {
  for (const double capacity : cells.capacity) fair_.add_link(capacity);
  for (std::size_t f = 0; f < fifos_.size(); ++f) {
    const CellFifo& fifo = cells.cell_fifos[f];
    fair_.add_group({cells.route_links.data() + fifo.first_link, fifo.links},
                    {cells.route_times.data() + fifo.first_link, fifo.links});
    fifos_[f].latency = ticks(fifo.latency_s);
    fifos_[f].eager = fifo.eager;
    fifos_[f].inside = fifo.inside;
  }
  std::int32_t engines = 0;
  for (std::size_t c = 0; c < cells.rank.size(); ++c) {
    const std::int32_t rank = cells.rank[c];
    const std::int32_t own[] = {fair_.add_link(network.rank_speed(rank))};
    fair_.add_group(own);
    const Shape& shape =
        compiled.shapes[static_cast<std::size_t>(compiled.shape_of_rank[static_cast<std::size_t>(rank)])];
    const auto first = static_cast<std::int32_t>(info_.size());
    for (std::uint32_t l = shape.first_lane; l < shape.end_lane; ++l) {
      const CompiledLane& lane = compiled.lanes[l];
      LaneInfo info{.cell = static_cast<std::int32_t>(c),
                    .number = static_cast<std::int32_t>(l - shape.first_lane),
                    .first_of_cell = first,
                    .first_fifo = cells.first_of_cell[c],
                    .first_block = lane.first_block,
                    .end_block = lane.end_block,
                    .steps = lane.steps,
                    .engine = engines};
      for (std::size_t other = static_cast<std::size_t>(first); other < info_.size(); ++other)
        if (network.engine(rank, info_[other].number) == network.engine(rank, info.number))
          info.engine = info_[other].engine;
      engines += info.engine == engines;
      info_.push_back(info);
      lanes_.emplace_back().block = lane.first_block;
    }
  }
  groups_.resize(fair_.group_count());
  engine_free_.resize(static_cast<std::size_t>(engines));
  const NetworkModel& model = network.model();
  step_ticks_ = ticks(model.step_s);
  send_ticks_ = ticks(model.send_overhead_s);
  receive_ticks_ = ticks(model.receive_overhead_s);
  rendezvous_ticks_ = ticks(model.rendezvous_s);
  if (model.reduce_bandwidth > 0) reduce_s_ = 1 / model.reduce_bandwidth;
  if (model.copy_bandwidth > 0) copy_s_ = 1 / model.copy_bandwidth;
  inside_copy_s_ = model.inside_copy_bandwidth > 0 ? 1 / model.inside_copy_bandwidth : 0;
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
    if (messages_ - skipped_messages_ > options_.most_messages)
      return fail(
          Code::invalid_argument,
          fmt::format("the schedule of {} ranks takes more than {} messages to simulate (it has {})",
                      network_.ranks(), options_.most_messages, compiled_.messages * options_.slices));
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
      if (groups_[static_cast<std::size_t>(event.id)].version == event.version) finish_due(event.id);
      break;
    case Event::Kind::arrival:
      arrive(event.id);
      break;
    case Event::Kind::resume:
      wake(event.id);
      break;
    case Event::Kind::start:
      start_next(event.id);
      break;
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
    if (step_ticks_ > 0 && !std::is_sorted(running_.begin(), running_.end()))
      std::sort(running_.begin(), running_.end());
    for (const std::int32_t lane : running_) {
      lanes_[static_cast<std::size_t>(lane)].in_ready = false;
      run_lane(lane);
    }
    running_.clear();
  }
}

void Engine::run_lane(std::int32_t lane) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  const std::int32_t cell = info_[static_cast<std::size_t>(lane)].cell;
  while (!done(lane)) {
    const CompiledStep& step = step_of(s);
    if (s.phase == LaneState::Phase::wait) {
      if (!can_begin(lane, step) || !take_messages(lane, step)) return;
      Ticks then = now_;
      if (step_ticks_ > 0) {
        Ticks& free = processor_free_[static_cast<std::size_t>(cell)];
        free = std::max(free, now_) + step_ticks_;
        then = free;
      }
      then += receive_ticks_ * step.sources;
      s.phase = LaneState::Phase::work;
      if (then > now_) return queue_.push(then, {Event::Kind::resume, lane, 0});
    }
    if (s.phase == LaneState::Phase::work) {
      s.phase = LaneState::Phase::send;
      if (const double seconds = work_s(lane, step); seconds > 0) return begin_work(lane, seconds);
    }
    complete_step(lane, step);
  }
}

bool Engine::can_begin(std::int32_t lane, const CompiledStep& step) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  for (std::uint32_t i = 0; i < step.dependencies; ++i) {
    const Dependency& d = compiled_.dependencies[step.first_dependency + i];
    const std::int32_t number = info_[static_cast<std::size_t>(lane)].first_of_cell + d.lane;
    LaneState& other = lanes_[static_cast<std::size_t>(number)];
    if (other.completed > s.slice * info_[static_cast<std::size_t>(number)].steps + d.step) continue;
    s.waits_for = number;
    s.next_waiter = other.first_waiter;
    other.first_waiter = lane;
    return false;
  }
  if (options_.room == 0) return true;
  for (std::uint32_t k = step.sources; k < static_cast<std::uint32_t>(step.sources) + step.destinations;
       ++k) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(fifo_of(lane, step.first_operand + k))];
    if (fifo.outstanding < options_.room) continue;
    fifo.sender = lane;
    return false;
  }
  return true;
}

bool Engine::take_messages(std::int32_t lane, const CompiledStep& step) {
  std::int32_t missing = -1;
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    const std::int32_t number = fifo_of(lane, step.first_operand + k);
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
    FifoState& fifo = fifos_[static_cast<std::size_t>(fifo_of(lane, step.first_operand + k))];
    --fifo.arrived;
    --fifo.started;
    fifo.wanted = false;
  }
  return true;
}

void Engine::complete_step(std::int32_t lane, const CompiledStep& step) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    FifoState& fifo = fifos_[static_cast<std::size_t>(fifo_of(lane, step.first_operand + k))];
    --fifo.outstanding;
    if (fifo.sender >= 0) wake(std::exchange(fifo.sender, -1));
  }
  for (std::uint32_t k = step.sources; k < static_cast<std::uint32_t>(step.sources) + step.destinations;
       ++k)
    post(lane, fifo_of(lane, step.first_operand + k), bytes_of(step));
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
  const LaneInfo& own = info_[static_cast<std::size_t>(lane)];
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
  if (++s.slice == options_.slices) finish_cell(own.cell);
}

void Engine::finish_cell(std::int32_t cell) {
  Ticks& end = cell_end_[static_cast<std::size_t>(cell)];
  end = std::max(end, now_ + skipped_);
}

std::string Engine::explain_deadlock() const {
  std::int64_t stuck = 0;
  std::string text;
  for (std::int32_t lane = 0; lane < static_cast<std::int32_t>(lanes_.size()); ++lane) {
    if (done(lane) || ++stuck > 4) continue;
    const LaneState& s = lanes_[static_cast<std::size_t>(lane)];
    const LaneInfo& own = info_[static_cast<std::size_t>(lane)];
    text += fmt::format("; rank {} lane {} step {}", rank_of(lane), own.number,
                        s.completed - s.slice * own.steps);
    if (s.waits_for >= 0) {
      text += fmt::format(" waits for its lane {}", info_[static_cast<std::size_t>(s.waits_for)].number);
      continue;
    }
    const CompiledStep& step = step_of(s);
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(step.sources) + step.destinations; ++k) {
      const std::int32_t number = fifo_of(lane, step.first_operand + k);
      const FifoState& state = fifos_[static_cast<std::size_t>(number)];
      const bool takes = state.receiver == lane && k < step.sources;
      if (!takes && state.sender != lane) continue;
      // Of the FIFOs that are simulated as this one, that of this rank.
      const auto rank = static_cast<std::size_t>(rank_of(lane));
      const std::int32_t place = compiled_.operands[step.first_operand + k];
      const CompiledFifo& fifo = compiled_.fifos[static_cast<std::size_t>(
          compiled_.rank_fifos[compiled_.first_of_rank[rank] + static_cast<std::uint32_t>(place)])];
      text += takes ? fmt::format(" waits for a message from rank {}", fifo.source)
                    : fmt::format(" waits for room at rank {}", fifo.destination);
    }
  }
  return fmt::format("deadlock: {} of {} lanes are stuck{}", stuck, lanes_.size(), text);
}

Result<Simulation> Engine::result() {
  Simulation made;
  Ticks last = 0;
  for (const Ticks end : cell_end_) last = std::max(last, end);
  for (const std::int32_t cell : cells_.cell_of_rank)
    made.rank_seconds.push_back(static_cast<double>(cell_end_[static_cast<std::size_t>(cell)]) * tick_s_);
  made.seconds = static_cast<double>(last) * tick_s_;
  made.messages = compiled_.messages * options_.slices;
  made.simulated_messages = messages_ - skipped_messages_;
  made.simulated_ranks = static_cast<std::int32_t>(cells_.rank.size());
  made.steps = compiled_.most_in_lane * options_.slices;
  std::vector<double> moved(cells_.capacity.size());  // over one link of each colour
  for (std::size_t f = 0; f < fifos_.size(); ++f) {
    const auto group = static_cast<std::int32_t>(f);
    made.bytes_sent += groups_[f].total * cells_.cell_fifos[f].count;
    for (std::size_t i = 0; i < fair_.links(group).size(); ++i)
      moved[static_cast<std::size_t>(fair_.links(group)[i])] += groups_[f].total * fair_.times(group)[i];
  }
  made.link_bytes.assign(cells_.colour_of_link.size(), 0);
  for (std::size_t l = 0; l < made.link_bytes.size(); ++l) {
    if (cells_.colour_of_link[l] < 0) continue;
    const auto colour = static_cast<std::size_t>(cells_.colour_of_link[l]);
    made.link_bytes[l] = moved[colour];
    const double share = made.seconds > 0 ? moved[colour] / cells_.capacity[colour] / made.seconds : 0;
    if (share <= made.busiest_share * (1 + 1e-9)) continue;
    made.busiest_share = share;
    made.busiest_link = static_cast<std::int32_t>(l);
  }
  made.filled = fair_.filled();
  return made;
}

}  // namespace tamaki::simulation
