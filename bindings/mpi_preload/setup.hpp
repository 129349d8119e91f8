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

struct SetupWish {
  MPI_Comm comm;
  int rank = 0;
  int ranks = 0;
  std::string name;
  bool may_accelerate = true;  // false: this rank cannot, for `reason`
  Reason refusal = Reason::unavailable;
  std::string refusal_text;
  std::uint64_t min_bytes = 0, max_bytes = 0;
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
