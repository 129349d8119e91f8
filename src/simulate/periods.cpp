// Loops of programs become periodic: finds that the state is what it was, and counts periods at once.
#include <algorithm>
#include <bit>
#include <limits>

#include "simulate/engine.hpp"
#include "simulate/mix.hpp"

namespace tamaki::simulation {
namespace {

// Relative times that differ by less than half of it are the same: what rounding leaves between equals.
constexpr Ticks kUnit = 1024;

std::uint64_t pack(std::int32_t high, std::int32_t low) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 |
         static_cast<std::uint32_t>(low);
}

}  // namespace

void Engine::look_for_period() {
  anchor_turned_ = false;
  if (options_.loops == SimulationOptions::Loops::simulate || options_.spans != nullptr) return;
  // A look costs as much as some messages of each lane; it must not cost more than they do.
  if (messages_ - messages_at_look_ < static_cast<std::int64_t>(lanes_.size()) / 2) return;
  messages_at_look_ = messages_;
  ++looks_;
  const std::uint64_t now = signature();
  if (memory_.valid && memory_.signature == now && memory_.dependency_wakes == dependency_wakes_) {
    skip_periods();
    return;
  }
  // As in Brent's cycle finding: the memory is renewed at ever longer intervals, so that any period is
  // found.
  if (memory_.valid && looks_ < next_memory_) return;
  next_memory_ = looks_ + std::max<std::int64_t>(1, looks_ / 4);
  memory_.signature = now;
  remember();
}

void Engine::remember() {
  memory_.valid = true;
  memory_.now = now_ + skipped_;
  memory_.messages = messages_;
  memory_.dependency_wakes = dependency_wakes_;
  memory_.completed.resize(lanes_.size());
  for (std::size_t l = 0; l < lanes_.size(); ++l) memory_.completed[l] = lanes_[l].completed;
  memory_.totals.resize(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) memory_.totals[g] = groups_[g].total;
}

/// Of all that the further course depends on but the iterations of loops, with times relative to now. Sums
/// of mixed words, so that no order matters.
std::uint64_t Engine::signature() const {
  std::uint64_t sum = 0;
  const auto unit = [&](Ticks time) {
    return static_cast<std::uint64_t>((time - now_ + kUnit / 2) / kUnit);
  };
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LaneState& s = lanes_[l];
    std::uint64_t own = mix(l + 1, s.block, pack(static_cast<std::int32_t>(s.in_block), s.slice));
    own = mix(own, static_cast<std::uint64_t>(s.phase) << 8 | static_cast<std::uint64_t>(s.sender),
              pack(s.waits_for, s.in_ready ? 1 : 0));
    for (std::int32_t t = s.queue_head; t >= 0; t = transfers_[static_cast<std::size_t>(t)].next)
      own = mix(own, static_cast<std::uint64_t>(transfers_[static_cast<std::size_t>(t)].fifo),
                std::bit_cast<std::uint64_t>(transfers_[static_cast<std::size_t>(t)].amount));
    sum += own;
  }
  for (std::size_t f = 0; f < fifos_.size(); ++f) {
    const FifoState& fifo = fifos_[f];
    if (fifo.arrived == 0 && fifo.outstanding == 0 && fifo.started == 0 && fifo.receiver < 0 &&
        fifo.sender < 0 && fifo.asking < 0)
      continue;
    sum += mix(mix(mix(f ^ 0xf1f0, pack(fifo.arrived, fifo.outstanding), pack(fifo.started, fifo.receiver)),
                   pack(fifo.sender, fifo.asking), fifo.wanted ? 1 : 0),
               1, 1);
  }
  for (std::size_t r = 0; r < processor_free_.size(); ++r)
    if (processor_free_[r] > now_) sum += mix(r ^ 0xc0de, unit(processor_free_[r]), 2);
  for (std::size_t e = 0; e < engine_free_.size(); ++e)
    if (engine_free_[e] > now_) sum += mix(e ^ 0xe61e, unit(engine_free_[e]), 3);
  for (std::size_t group = fifos_.size(); group < groups_.size(); ++group) {
    // Of work the first end is an event; the others follow at a distance of work.
    const FlowGroup& g = groups_[group];
    if (g.flows == 0) continue;
    const double first = transfers_[static_cast<std::size_t>(g.first)].end;
    for (std::int32_t t = g.first; t >= 0; t = transfers_[static_cast<std::size_t>(t)].next_in_group) {
      const Transfer& work = transfers_[static_cast<std::size_t>(t)];
      sum += mix(
          group ^ 0x3073, static_cast<std::uint64_t>(work.lane),
          static_cast<std::uint64_t>((work.end - first) / (tick_s_ * static_cast<double>(kUnit)) + 0.5));
    }
  }
  queue_.each([&](Ticks time, const Event& event) {
    std::uint64_t more = static_cast<std::uint64_t>(event.kind);
    if (event.kind == Event::Kind::finish) {
      const FlowGroup& g = groups_[static_cast<std::size_t>(event.id)];
      if (g.version != event.version) return;
      more |= std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(g.rate))} << 8;
      time = g.end;
    }
    sum += mix(static_cast<std::uint64_t>(event.id) ^ 0xe7e7, unit(time), more);
  });
  return sum;
}

void Engine::skip_periods() {
  std::int64_t periods = std::numeric_limits<std::int64_t>::max();
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LaneState& s = lanes_[l];
    const std::int64_t steps = s.completed - memory_.completed[l];
    if (s.waits_for >= 0) {
      // It stays stuck as long as the step that it waits for is not reached.
      const auto other = static_cast<std::size_t>(s.waits_for);
      const std::int64_t turn = lanes_[other].completed - memory_.completed[other];
      const CompiledStep& step = step_of(s);
      for (std::uint32_t i = 0; i < step.dependencies && turn > 0; ++i) {
        const Dependency& d = compiled_.dependencies[step.first_dependency + i];
        if (info_[l].first_of_cell + d.lane != s.waits_for) continue;
        const std::int64_t needed = s.slice * info_[other].steps + d.step;
        if (needed >= lanes_[other].completed)
          periods = std::min(periods, (needed - lanes_[other].completed) / turn);
      }
    }
    if (steps == 0) continue;
    const CompiledBlock& block = compiled_.blocks[s.block];
    const std::int64_t turns = steps / block.length;
    periods = std::min(periods, (block.times - 1 - s.iteration) / turns);
  }
  memory_.valid = false;
  looks_ = 0;
  next_memory_ = 1;
  if (periods <= 0 || periods == std::numeric_limits<std::int64_t>::max()) return;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    LaneState& s = lanes_[l];
    const std::int64_t steps = s.completed - memory_.completed[l];
    if (steps == 0) continue;
    s.iteration += static_cast<std::int32_t>(periods * (steps / compiled_.blocks[s.block].length));
    s.completed += periods * steps;
  }
  const std::int64_t messages = periods * (messages_ - memory_.messages);
  messages_ += messages;
  skipped_messages_ += messages;
  messages_at_look_ = messages_;
  for (std::size_t g = 0; g < memory_.totals.size(); ++g)
    groups_[g].total += static_cast<double>(periods) * (groups_[g].total - memory_.totals[g]);
  const Ticks period = now_ + skipped_ - memory_.now;
  if (static_cast<double>(periods) * static_cast<double>(period) + static_cast<double>(now_ + skipped_) >
      4e18)
    overflowed_ = true;
  else
    skipped_ += periods * period;
}

}  // namespace tamaki::simulation
