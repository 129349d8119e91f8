#pragma once
// What the preload keeps for each communicator, and for the process.
//
// A State hangs on its communicator as an attribute whose delete function ends it, so its life is the
// communicator's whatever handle values are reused. A small cache in front of the attribute holds only
// communicators that have a State: freeing one empties its entry. States are recycled, never freed, so that
// a look at a stale cache entry reads valid memory and sees that it belongs to somebody else.
//
// Threads: calls on different communicators may run at once (MPI_THREAD_MULTIPLE); two collectives at once
// on one communicator are an error of the program by MPI's rules.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "communicator/communicator.hpp"
#include "mpi_header.hpp"
#include "setup.hpp"
#include "statistics.hpp"

namespace tamaki::mpi {

enum class Mode : std::uint8_t {
  fresh,  // no eligible call yet
  accelerated,
  passed,  // for good, for `reason`
};

struct State {
  std::atomic<Raw> owner{nullptr};  // the communicator; null: on the free list
  Mode mode = Mode::fresh;
  Reason reason = Reason::accelerated;
  int rank = 0;
  int ranks = 0;
  std::int64_t calls_to_setup = 0;  // eligible calls that still go to MPI while fresh
  bool reported = false;            // its failure has been logged
  std::uint64_t min_bytes = 0;      // rank 0's thresholds: a call goes the same way on all ranks
  std::uint64_t max_bytes = 0;
  AdvanceClock clock;
  std::unique_ptr<Communicator> tamaki;
  std::unique_ptr<Ledger> ledger;  // with statistics only

  struct Known {  // algorithm by shape of call, for the statistics
    std::uint64_t key = 0;
    std::string algorithm;
  };
  std::array<Known, 16> known;
};

inline constexpr unsigned kCacheSlots = 64;
extern std::atomic<State*> g_cache[kCacheSlots];

enum class Phase : int { unknown, running, over };
extern std::atomic<Phase> g_phase;
extern bool g_statistics;  // set before the phase becomes running

inline unsigned cache_slot(Raw comm) {
  return static_cast<unsigned>((reinterpret_cast<std::uintptr_t>(comm) * 0x9e3779b97f4a7c15u) >> 58);
}

/// Starts the preload at the first call of an MPI that is initialised and not finalised. False: pass
/// everything.
bool start();
inline bool running() {
  const Phase phase = g_phase.load(std::memory_order_acquire);  // pairs with the release in start()
  if (phase == Phase::running) [[likely]]
    return true;
  return phase == Phase::unknown && start();
}

/// The State of a communicator, made if there is none. Null: not a communicator. Local.
State* find_state(Raw comm);
inline State* state_of(Raw comm) {
  State* cached = g_cache[cache_slot(comm)].load(std::memory_order_acquire);
  if (cached != nullptr && cached->owner.load(std::memory_order_relaxed) == comm) [[likely]]
    return cached;
  return find_state(comm);
}

/// Whether a fresh communicator is to be set up in this eligible call of `bytes`. The same on all ranks.
bool due_for_setup(State& state, std::uint64_t bytes);
/// Decides for good how a fresh communicator is served. Collective over it: every rank calls this from the
/// same collective call. Leaves it accelerated on all ranks or passed on all ranks.
void set_up(State& state);

/// Reports an error of Tamaki in the words of MPI: through the communicator's error handler. Returns the
/// error code.
int raise(State& state, const Error& error);

/// Adds a call to the statistics; `state` null: of no valid communicator.
void count(State* state, Call call, Reason reason, std::string_view algorithm, std::uint64_t bytes,
           std::uint64_t nanoseconds);
std::uint64_t clock_ns();
/// Name of the algorithm that serves `call`.
const std::string& algorithm_of(State& state, const tamaki::Call& call);

}  // namespace tamaki::mpi
