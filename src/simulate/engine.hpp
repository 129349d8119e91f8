#pragma once
// The simulation itself: lanes, FIFOs, flows and the events that move them. Inside of simulate().

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulate/cells.hpp"
#include "simulate/event_queue.hpp"
#include "simulate/fair_share.hpp"

namespace tamaki::simulation {

// Events that are no further apart happen at one time: what rounding leaves between equals.
inline constexpr Ticks kTogether = 16;

/// A lane of a cell.
struct LaneInfo {
  std::int32_t cell = 0;
  std::int32_t number = 0;         // within the rank
  std::int32_t first_of_cell = 0;  // lane 0 of the cell
  std::uint32_t first_fifo = 0;    // of the cell, in Cells::fifos
  std::uint32_t first_block = 0, end_block = 0;
  std::int64_t steps = 0;  // expanded, of one slice
  std::int32_t engine = 0;
};

struct LaneState {
  enum class Phase : std::uint8_t { wait, work, send };                    // of the current step
  enum class Sender : std::uint8_t { idle, asks, granted, queued, wire };  // of the message at the head
  std::uint32_t block = 0;                                                 // in Compiled::blocks
  std::uint32_t in_block = 0;
  std::int32_t iteration = 0;
  std::int32_t slice = 0;
  std::int64_t completed = 0;  // steps, over all slices
  Phase phase = Phase::wait;
  Sender sender = Sender::idle;
  bool in_ready = false;
  std::int32_t waits_for = -1;                    // lane, for a dependency
  std::int32_t next_waiter = -1;                  // of the lane that this one waits for
  std::int32_t first_waiter = -1;                 // lanes that wait for this one
  std::int32_t queue_head = -1, queue_tail = -1;  // messages
};

struct FifoState {
  std::int32_t arrived = 0;      // and not yet taken
  std::int32_t outstanding = 0;  // handed to the sender, and not yet let go by the receiver's step
  std::int32_t started = 0;      // on the wire or arrived, not yet taken
  std::int32_t receiver = -1;    // lane that waits for a message
  std::int32_t sender = -1;      // lane that waits for room
  std::int32_t asking = -1;      // lane whose message waits until the receiver wants it
  bool wanted = false;           // the receiver is at the step that takes the next message
  Ticks latency = 0;
  double eager = 0;  // larger messages ask first
  bool inside = false;
};

/// A message, from its step on until its last byte has left; or a lane's work.
struct Transfer {
  std::int32_t lane = -1;
  std::int32_t fifo = -1;  // -1: work
  std::int32_t next = -1;  // in the lane's queue
  std::int32_t next_in_group = -1;
  double amount = 0;  // bytes, or seconds of work
  double end = 0;     // on the group's meter
  Ticks begin = 0;
};

/// Flows that share one rate. Its meter counts what each of them has been served while there are any.
struct FlowGroup {
  double meter = 0;
  double rate = 0;
  Ticks read = 0;           // when the meter was brought up to date
  std::int32_t first = -1;  // transfers, by `end`
  std::int32_t flows = 0;
  std::uint32_t version = 0;  // of its finish event
  Ticks end = 0;              // of the first transfer, as things are
  Ticks due = -1;             // time of its finish event, no later than `end`; -1: there is none
  bool touched = false;       // its next end must be looked at
  double total = 0;           // bytes that have left
};

class Engine {
 public:
  Engine(const Network& network, const Compiled& compiled, const Cells& cells,
         const SimulationOptions& options, double tick_s);
  Result<Simulation> run();
  /// Time did not fit; a longer tick is needed.
  bool overflowed() const { return overflowed_; }

 private:
  // engine.cpp
  Ticks ticks(double seconds);
  void process(const Event& event);
  void run_ready();
  void wake(std::int32_t lane);
  void run_lane(std::int32_t lane);
  bool can_begin(std::int32_t lane, const CompiledStep& step);
  bool take_messages(std::int32_t lane, const CompiledStep& step);
  void complete_step(std::int32_t lane, const CompiledStep& step);
  void advance(std::int32_t lane);
  void finish_cell(std::int32_t cell);
  const CompiledStep& step_of(const LaneState& s) const {
    return compiled_.steps[compiled_.blocks[s.block].begin + s.in_block];
  }
  bool done(std::int32_t lane) const {
    return lanes_[static_cast<std::size_t>(lane)].slice == options_.slices ||
           info_[static_cast<std::size_t>(lane)].steps == 0;
  }
  double bytes_of(const CompiledStep& step) const {
    return (step.share * options_.bytes + static_cast<double>(step.tokens)) / options_.slices;
  }
  double work_s(std::int32_t lane, const CompiledStep& step) const {
    double a_byte = step.combines * reduce_s_ + step.copies * copy_s_;
    if (inside_copy_s_ > 0)
      for (std::uint32_t k = 0; k < step.sources; ++k)
        if (fifos_[static_cast<std::size_t>(fifo_of(lane, step.first_operand + k))].inside) a_byte += inside_copy_s_;
    return a_byte * bytes_of(step);
  }
  /// FIFO of an operand of a step of `lane`.
  std::int32_t fifo_of(std::int32_t lane, std::uint32_t operand) const {
    return cells_.fifos[info_[static_cast<std::size_t>(lane)].first_fifo +
                        static_cast<std::uint32_t>(compiled_.operands[operand])];
  }
  std::int32_t rank_of(std::int32_t lane) const {
    return cells_.rank[static_cast<std::size_t>(info_[static_cast<std::size_t>(lane)].cell)];
  }
  // transfers.cpp
  void post(std::int32_t lane, std::int32_t fifo, double bytes);
  void start_next(std::int32_t lane);
  void begin_work(std::int32_t lane, double seconds);
  void begin_transfer(std::int32_t group, std::int32_t transfer);
  void end_transfers(std::int32_t group);
  void message_left(std::int32_t transfer);
  void arrive(std::int32_t fifo);
  void read_meter(FlowGroup* group);
  void touch(std::int32_t group);
  void settle();
  void schedule_end(std::int32_t group);
  void finish_due(std::int32_t group);
  std::int32_t new_transfer();
  // periods.cpp
  void look_for_period();
  std::uint64_t signature() const;
  void remember();
  void skip_periods();
  // engine.cpp
  std::string explain_deadlock() const;
  Result<Simulation> result();

  const Network& network_;
  const Compiled& compiled_;
  const Cells& cells_;
  const SimulationOptions& options_;
  const double tick_s_;
  Ticks now_ = 0, skipped_ = 0;  // time = now_ + skipped_
  bool overflowed_ = false;
  std::optional<Error> error_;
  EventQueue queue_;
  FairShare fair_;
  std::vector<LaneInfo> info_;
  std::vector<LaneState> lanes_;
  std::vector<FifoState> fifos_;   // beside Cells::cell_fifos; its group has the same number
  std::vector<FlowGroup> groups_;  // beside the groups of fair_: those of FIFOs, then of the cells' work
  std::vector<Transfer> transfers_;
  std::vector<std::int32_t> free_transfers_, ended_, touched_, ready_, running_;
  std::vector<Ticks> processor_free_, engine_free_, cell_end_;
  Ticks step_ticks_ = 0, send_ticks_ = 0, receive_ticks_ = 0, rendezvous_ticks_ = 0;
  double reduce_s_ = 0, copy_s_ = 0, inside_copy_s_ = 0;  // a byte
  std::int64_t messages_ = 0, skipped_messages_ = 0, dependency_wakes_ = 0;

  struct Memory {  // of an earlier moment
    bool valid = false;
    std::uint64_t signature = 0;
    Ticks now = 0;
    std::int64_t messages = 0, dependency_wakes = 0;
    std::vector<std::int64_t> completed;  // of lanes
    std::vector<double> totals;           // of groups
  };
  Memory memory_;
  std::int32_t anchor_ = -1;  // lane in a loop, whose iterations say when to look
  bool anchor_turned_ = false;
  std::int64_t looks_ = 0, next_memory_ = 1, messages_at_look_ = 0;
};

}  // namespace tamaki::simulation
