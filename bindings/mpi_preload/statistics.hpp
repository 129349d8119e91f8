#pragma once
// TAMAKI_MPI_STATS: what each rank called, and which way it went. Everything here is off the fast path:
// with the option unset nothing of it is called.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace tamaki::mpi {

enum class Call : std::uint8_t {
  allreduce,
  reduce_scatter,
  reduce_scatter_block,
  allgather,
  broadcast,
  iallreduce,
};
inline constexpr int kCalls = 6;
std::string_view name_of(Call call);

/// Why a call went to MPI. The texts of the report are in statistics.cpp.
enum class Reason : std::uint8_t {
  accelerated,  // it did not
  not_running,  // MPI not initialised, finalised, or of another kind
  argument,     // looks wrong: MPI is to say so
  nothing,      // zero bytes
  type,         // derived, or one whose arithmetic is not ours
  operation,    // user-defined, or MINLOC, MAXLOC, ...
  pair,         // the operation is not defined for the type
  one_rank,
  intercommunicator,
  foreign,  // has ranks outside this MPI_COMM_WORLD
  small,
  large,        // TAMAKI_MPI_MIN_BYTES, MAX_BYTES
  huge,         // more than 2 GiB a block of a call that may have to pack
  unavailable,  // Tamaki could not be set up on it
  crowded,      // too many accelerated communicators
  nonblocking,
  early,  // not yet set up: TAMAKI_MPI_SETUP_CALLS
  unserved,  // a rule of the user names an algorithm that cannot serve it
};
inline constexpr int kReasons = 18;
std::string_view text_of(Reason reason);

/// One kind of call on one communicator.
struct Counter {
  Call call = Call::allreduce;
  Reason reason = Reason::accelerated;
  std::string algorithm;  // of accelerated calls
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t nanoseconds = 0;
};

/// Calls on one communicator, or on several of one name and size that have been freed.
struct Ledger {
  std::string name;
  int id = 0;  // in the order of first use on this rank; -1: calls on no valid communicator
  int ranks = 0;
  int communicators = 1;
  std::vector<Counter> counters;

  void add(const Counter& more);
};

struct Identity {
  int rank = -1;
  int ranks = 0;
  std::string library;
  int thread_level = 0;
};

enum class Ending { running, finalized, unfinalized };

/// The report: one JSON object, a record a line. Times in seconds, sizes in bytes.
std::string render(const Identity& identity, const std::vector<const Ledger*>& ledgers, Ending ending);
/// Replaces the file as a whole. `pattern`: %r rank, %p pid, %h host; without %r or %p the rank is
/// appended. Returns the errno of a failure, else 0.
int write_report(const std::string& pattern, int rank, const std::string& text);

}  // namespace tamaki::mpi
