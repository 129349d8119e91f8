// Messages and work on their way: queues of senders, flows and their ends.
#include <algorithm>
#include <utility>

#include "simulate/engine.hpp"

namespace tamaki::simulation {
std::int32_t Engine::new_transfer() {
  if (free_transfers_.empty()) {
    transfers_.emplace_back();
    return static_cast<std::int32_t>(transfers_.size()) - 1;
  }
  const std::int32_t transfer = free_transfers_.back();
  free_transfers_.pop_back();
  transfers_[static_cast<std::size_t>(transfer)] = {};
  return transfer;
}

void Engine::post(std::int32_t lane, std::int32_t fifo, double bytes) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  const std::int32_t made = new_transfer();
  Transfer& t = transfers_[static_cast<std::size_t>(made)];
  t.lane = lane;
  t.fifo = fifo;
  t.amount = bytes;
  ++fifos_[static_cast<std::size_t>(fifo)].outstanding;
  ++messages_;
  if (s.queue_head < 0) {
    s.queue_head = s.queue_tail = made;
    start_next(lane);
  } else {
    transfers_[static_cast<std::size_t>(std::exchange(s.queue_tail, made))].next = made;
  }
}

void Engine::start_next(std::int32_t lane) {
  LaneState& s = lanes_[static_cast<std::size_t>(lane)];
  const std::int32_t transfer = s.queue_head;
  const Transfer& t = transfers_[static_cast<std::size_t>(transfer)];
  FifoState& fifo = fifos_[static_cast<std::size_t>(t.fifo)];
  const bool settled = s.sender == LaneState::Sender::granted || s.sender == LaneState::Sender::queued;
  if (!settled && fifo.eager > 0 && t.amount > fifo.eager) {
    if (!fifo.wanted || fifo.started > 0) {
      s.sender = LaneState::Sender::asks;
      fifo.asking = lane;
      return;
    }
    s.sender = LaneState::Sender::granted;
    if (rendezvous_ticks_ > 0) return queue_.push(now_ + rendezvous_ticks_, {Event::Kind::start, lane, 0});
  }
  if (!fifo.inside) {
    Ticks& engine = engine_free_[static_cast<std::size_t>(info_[static_cast<std::size_t>(lane)].engine)];
    if (engine > now_) {
      s.sender = LaneState::Sender::queued;
      return queue_.push(engine, {Event::Kind::start, lane, 0});
    }
    engine = now_ + send_ticks_;
  }
  s.sender = LaneState::Sender::wire;
  ++fifo.started;
  transfers_[static_cast<std::size_t>(transfer)].begin = now_;
  if (fifo.inside && inside_copy_s_ > 0) {  // it lies where the receiver reads it
    groups_[static_cast<std::size_t>(t.fifo)].total += t.amount;
    message_left(transfer);
  } else if (t.amount > 0) {
    begin_transfer(t.fifo, transfer);
  } else {
    message_left(transfer);
  }
}

void Engine::begin_work(std::int32_t lane, double seconds) {
  const std::int32_t made = new_transfer();
  Transfer& t = transfers_[static_cast<std::size_t>(made)];
  t.lane = lane;
  t.amount = seconds;
  t.begin = now_;
  begin_transfer(static_cast<std::int32_t>(fifos_.size()) + info_[static_cast<std::size_t>(lane)].cell,
                 made);
}

void Engine::read_meter(FlowGroup* group) {
  if (group->flows > 0) group->meter += group->rate * (static_cast<double>(now_ - group->read) * tick_s_);
  group->read = now_;
}

void Engine::touch(std::int32_t group) {
  FlowGroup& g = groups_[static_cast<std::size_t>(group)];
  fair_.set_flows(group, g.flows);
  if (g.touched) return;
  g.touched = true;
  touched_.push_back(group);
}

void Engine::begin_transfer(std::int32_t group, std::int32_t transfer) {
  FlowGroup& g = groups_[static_cast<std::size_t>(group)];
  read_meter(&g);
  if (g.flows == 0) g.meter = 0;
  Transfer& t = transfers_[static_cast<std::size_t>(transfer)];
  t.end = g.meter + t.amount;
  std::int32_t* link = &g.first;
  while (*link >= 0 && transfers_[static_cast<std::size_t>(*link)].end <= t.end)
    link = &transfers_[static_cast<std::size_t>(*link)].next_in_group;
  t.next_in_group = *link;
  *link = transfer;
  ++g.flows;
  touch(group);
}

void Engine::end_transfers(std::int32_t group) {
  {
    FlowGroup& g = groups_[static_cast<std::size_t>(group)];
    read_meter(&g);
    // The first is at its end, up to rounding; others that end with it go along.
    g.meter = std::max(g.meter, transfers_[static_cast<std::size_t>(g.first)].end);
    const double until = g.meter * (1 + 1e-12);
    while (g.first >= 0 && transfers_[static_cast<std::size_t>(g.first)].end <= until) {
      ended_.push_back(g.first);
      g.first = transfers_[static_cast<std::size_t>(g.first)].next_in_group;
      --g.flows;
    }
    touch(group);
  }
  for (const std::int32_t transfer : ended_) {
    const Transfer& t = transfers_[static_cast<std::size_t>(transfer)];
    if (t.fifo >= 0) {
      groups_[static_cast<std::size_t>(group)].total += t.amount;
      message_left(transfer);
      continue;
    }
    if (options_.spans != nullptr)
      options_.spans->push_back({.kind = SimulatedSpan::Kind::work,
                                 .rank = rank_of(t.lane),
                                 .lane = info_[static_cast<std::size_t>(t.lane)].number,
                                 .begin_s = static_cast<double>(t.begin) * tick_s_,
                                 .end_s = static_cast<double>(now_) * tick_s_});
    wake(t.lane);
    free_transfers_.push_back(transfer);
  }
  ended_.clear();
}

void Engine::message_left(std::int32_t transfer) {
  const Transfer t = transfers_[static_cast<std::size_t>(transfer)];
  free_transfers_.push_back(transfer);
  const NetworkModel& model = network_.model();
  FifoState& fifo = fifos_[static_cast<std::size_t>(t.fifo)];
  Ticks latency = fifo.latency;
  if (model.eager_bandwidth > 0 && fifo.eager > 0 && t.amount <= fifo.eager)
    latency += ticks(t.amount / model.eager_bandwidth);
  const LaneInfo& own = info_[static_cast<std::size_t>(t.lane)];
  if (options_.spans != nullptr)
    options_.spans->push_back(
        {.kind = SimulatedSpan::Kind::message,
         .rank = rank_of(t.lane),
         .lane = own.number,
         .peer =
             compiled_
                 .fifos[static_cast<std::size_t>(cells_.cell_fifos[static_cast<std::size_t>(t.fifo)].fifo)]
                 .destination,
         .bytes = t.amount,
         .begin_s = static_cast<double>(t.begin) * tick_s_,
         .end_s = static_cast<double>(now_) * tick_s_,
         .arrival_s = static_cast<double>(now_ + latency) * tick_s_});
  if (latency > 0)
    queue_.push(now_ + latency, {Event::Kind::arrival, t.fifo, 0});
  else
    arrive(t.fifo);
  finish_cell(own.cell);
  LaneState& s = lanes_[static_cast<std::size_t>(t.lane)];
  s.sender = LaneState::Sender::idle;
  s.queue_head = t.next;
  if (s.queue_head >= 0)
    start_next(t.lane);
  else
    s.queue_tail = -1;
}

void Engine::arrive(std::int32_t number) {
  FifoState& fifo = fifos_[static_cast<std::size_t>(number)];
  ++fifo.arrived;
  if (fifo.receiver >= 0) wake(std::exchange(fifo.receiver, -1));
}

void Engine::settle() {
  if (fair_.dirty())
    for (const std::int32_t group : fair_.solve()) {
      FlowGroup& g = groups_[static_cast<std::size_t>(group)];
      read_meter(&g);
      g.rate = fair_.rate(group);
      if (!g.touched) g.touched = true, touched_.push_back(group);
    }
  for (const std::int32_t group : touched_) schedule_end(group);
  touched_.clear();
}

void Engine::schedule_end(std::int32_t group) {
  FlowGroup& g = groups_[static_cast<std::size_t>(group)];
  g.touched = false;
  if (g.flows == 0) {
    ++g.version;
    g.due = -1;
    return;
  }
  read_meter(&g);
  const double left = std::max(0.0, transfers_[static_cast<std::size_t>(g.first)].end - g.meter);
  g.end = now_ + ticks(left / g.rate);
  // An event that comes too early is put off when it comes: rates change more often than transfers end.
  if (g.due >= 0 && g.due <= g.end) return;
  g.due = g.end;
  queue_.push(g.end, {Event::Kind::finish, group, ++g.version});
}

void Engine::finish_due(std::int32_t group) {
  FlowGroup& g = groups_[static_cast<std::size_t>(group)];
  if (g.end > now_ + kTogether) {
    g.due = g.end;
    queue_.push(g.end, {Event::Kind::finish, group, ++g.version});
    return;
  }
  g.due = -1;
  end_transfers(group);
}

}  // namespace tamaki::simulation
