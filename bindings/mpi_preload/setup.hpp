#pragma once
// Joining the ranks of an MPI communicator into a Tamaki communicator.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "communicator/communicator.hpp"
#include "mpi_header.hpp"
#include "statistics.hpp"

namespace tamaki::mpi {

/// When a rank that waits in a collective lets MPI advance. A communicator's, used by the one call that is
/// in it.
struct AdvanceClock {
  std::uint64_t began_ns = 0;       // of the wait; 0: none yet in this call, which is how a call starts
  std::uint64_t not_before_ns = 0;  // of the next probe
};

struct SetupWish {
  MPI_Comm comm;
  int rank = 0;
  int ranks = 0;
  std::string name;
  bool may_accelerate = true;  // false: this rank cannot, for `reason`
  Reason refusal = Reason::unavailable;
  std::string refusal_text;
  std::uint64_t min_bytes = 0, max_bytes = 0;
  AdvanceClock* clock = nullptr;  // outlives the communicator
};

struct SetupResult {
  std::unique_ptr<Communicator> tamaki;  // null on all ranks, or on none
  Reason reason = Reason::accelerated;
  std::string warning;                         // non-empty on one rank: what went wrong there
  std::uint64_t min_bytes = 0, max_bytes = 0;  // rank 0's
};

/// Collective over wish.comm. All ranks come to the same result, whatever fails on whichever rank.
SetupResult join(const SetupWish& wish);

}  // namespace tamaki::mpi
