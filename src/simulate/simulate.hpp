#pragma once
// How long a schedule takes on a machine, and what it asks of its links.
//
// The model (constants: NetworkModel of the machine). Every lane of every rank goes through its steps in
// order, once per slice; a slice moves 1/slices of the bytes. A step begins when the steps that it depends
// on are done, the messages that it takes have arrived, and its FIFOs have room. Then pass, one after the
// other:
//   step_s, on the rank's processor, which serves its lanes one after the other; receive_overhead_s a
//   message the local work: (sources - 1) x bytes / reduce_bandwidth where it combines, bytes /
//   copy_bandwidth where it
//     copies within the rank, and bytes / inside_copy_bandwidth, where that is set, for each message of the
//     own host; lanes of a rank that work at the same time share the rank's speed
//   its messages are handed to the lane's sender, and the lane goes on.
// The sender of a lane has one message on the wire at a time, in order; the next may start when the last
// byte of the one before has left, and, where it leaves the host, send_overhead_s after the engine's last
// start at the earliest. A message of more than the eager threshold waits until the receiver is at the step that takes it, and
// starts rendezvous_s later. On the wire it is a flow over the links of its route, all of them at the same
// time, with its max-min fair rate (fair_share.hpp). It is there when its last byte has left and the
// latency of the route has passed (startup_s, hops); an eager one later by the time of the extra copy.
//
// Sizes are even: a chunk has bytes / chunks of the message, a fraction if need be. Time is counted in
// whole ticks of a femtosecond (longer ones where it would not fit), so that what is equal stays equal.
//
// Three shortcuts, which change nothing but the time this takes (tests compare with and without):
//   Ranks that are alike are simulated as one (cells.hpp).
//   Flows of one route are one variable, and where one ends as another of the same route begins no rates
//   are computed. Synchronous phases of symmetric schedules cost a few memory accesses a message so. Loops
//   of programs (Block::times) become periodic. When the whole state (positions within loops, relative
//   times of all pending events, queues) is what it was d iterations of each lane earlier, it will be
//   again: the simulation is deterministic and looks only at that state. Then as many periods as every loop
//   has left are counted at once: times shift, messages and bytes multiply.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"
#include "simulate/network.hpp"

namespace tamaki {

/// Builds the program of a rank; called once for each, in order. Only what differs between ranks is kept.
using ProgramSource = std::function<Program(std::int32_t rank)>;

/// What happened when, for timelines. Seconds from the start.
struct SimulatedSpan {
  enum class Kind : std::uint8_t { message, work };
  Kind kind = Kind::message;
  std::int32_t rank = 0;  // sender, or who works
  std::int32_t lane = 0;
  std::int32_t peer = -1;  // receiver
  double bytes = 0;        // work: 0
  double begin_s = 0;      // on the wire; the work begins
  double end_s = 0;        // last byte has left; the work ends
  double arrival_s = 0;    // messages
};

struct SimulationOptions {
  /// n: of the vector (allreduce, reduce, broadcast); of all ranks' blocks together (the others).
  double bytes = 0;
  std::int32_t slices = 1;
  /// Messages that a FIFO holds, sent and not yet taken; 0: any number.
  std::int32_t room = 0;
  /// Periodic loops are counted, not simulated. Not with `spans`.
  enum class Loops : std::uint8_t { skip, simulate };
  Loops loops = Loops::skip;
  /// More simulated messages than that end the simulation with an error.
  std::int64_t most_messages = 200'000'000;
  /// Filled with what happened, if not null. Memory in proportion to the messages.
  std::vector<SimulatedSpan>* spans = nullptr;
};

struct Simulation {
  double seconds = 0;                     // until the last rank is done
  std::vector<double> rank_seconds = {};  // until each rank is
  std::int64_t messages = 0;
  std::int64_t simulated_messages = 0;  // events of messages that were made; the others were inferred
  std::int32_t simulated_ranks = 0;     // after those that are alike were merged
  std::int64_t steps = 0;               // messages that the busiest lane sends or takes
  double bytes_sent = 0;                // by all ranks
  std::vector<double> link_bytes = {};  // of each link of the network
  std::int32_t busiest_link = -1;       // the largest share of time at full rate; -1: nothing was sent
  double busiest_share = 0;             // that share
  std::int64_t filled = 0;              // work of keeping rates up to date
};

/// Whether ranks that are alike are simulated as one.
enum class AlikeRanks : std::uint8_t { merge, apart };

namespace simulation {
struct Compiled;
struct Cells;
}  // namespace simulation

/// A schedule on a network, ready to be timed with any number of bytes. Building the programs of many ranks
/// and finding which are alike takes longer than the simulation as a rule. `network` must outlive it.
class TimedSchedule {
 public:
  /// Errors: programs that do not fit together (a rank out of range, messages that nobody takes), no route,
  /// too much to keep in memory (Code::invalid_argument).
  static Result<TimedSchedule> of(const Network& network, const ProgramSource& programs,
                                  AlikeRanks ranks = AlikeRanks::merge);
  TimedSchedule(TimedSchedule&&) noexcept;
  TimedSchedule& operator=(TimedSchedule&&) noexcept;
  ~TimedSchedule();

  /// Several threads may. Errors: a deadlock (who waits for what), options out of range, more messages than
  /// allowed (Code::invalid_argument). `spans` needs AlikeRanks::apart.
  Result<Simulation> run(const SimulationOptions& options) const;
  std::int64_t messages() const;  // of one slice
  Collective collective() const;
  const Network& network() const { return *network_; }

 private:
  TimedSchedule(const Network& network, AlikeRanks ranks);
  const Network* network_;
  AlikeRanks ranks_;
  std::unique_ptr<simulation::Compiled> compiled_;
  std::unique_ptr<simulation::Cells> cells_;
};

/// Both at once.
Result<Simulation> simulate(const Network& network, const ProgramSource& programs,
                            const SimulationOptions& options, AlikeRanks ranks = AlikeRanks::merge);

/// Bytes a second in the terms of nccl-tests: n / t, and times 2(p-1)/p (allreduce), (p-1)/p (allgather,
/// reduce_scatter, alltoall, gather, scatter) or 1.
double algorithm_bandwidth(double bytes, double seconds);
double bus_bandwidth(Collective collective, std::int32_t ranks, double bytes, double seconds);

/// A time that no schedule of this collective beats on this network, by the bytes that ranks and hosts must
/// at least send and take: allreduce 2n(p-1)/p for a rank and 2n(h-1)/h for one of h hosts, allgather and
/// reduce_scatter half of it, broadcast and reduce n, alltoall what leaves; over the rate of the slowest of
/// them, and at least one latency. Patarasuk and Yuan, JPDC 69 (2009). No bound by cuts of the fabric.
double lower_bound_s(const Network& network, Collective collective, double bytes);

}  // namespace tamaki
