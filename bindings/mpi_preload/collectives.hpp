#pragma once
// Each intercepted call is first offered here. An Attempt says what became of it: done (with MPI's return
// code), or to be passed on, and why.
//
// The way a call goes must be the same on all ranks, or they would wait for each other in two libraries. So
// it is decided only by what MPI demands to be equal on all ranks:
//   Allreduce, Reduce_scatter*   count(s), data type, operation: the same arguments everywhere
//   Bcast, Allgather             bytes of the message: type signatures agree, though handles and counts
//   need not
//                                (2 x MPI_INT here, 1 x MPI_2INT or a vector there); a rank whose type has
//                                gaps packs
// and by what the ranks have agreed on when the communicator was set up (State). Arguments that look wrong
// pass on: the program is in error, and MPI is to say so.

#include <cstddef>
#include <cstdint>

#include "mpi_header.hpp"
#include "state.hpp"
#include "statistics.hpp"

namespace tamaki::mpi {

struct Attempt {
  Call call;
  Reason reason = Reason::accelerated;
  int code = MPI_SUCCESS;   // if accelerated
  State* state = nullptr;   // null: not looked up
  std::uint64_t bytes = 0;  // of the message, as far as known
};

// Counts are MPI's, in elements; handles raw; sentinels (MPI_IN_PLACE, MPI_BOTTOM) those of C.
struct ReduceArguments {
  const void* send;
  void* recv;
  std::int64_t count;
  Raw type, op, comm;
};
Attempt attempt_allreduce(const ReduceArguments& a);
/// count: of one block.
Attempt attempt_reduce_scatter_block(const ReduceArguments& a);
/// counts[ranks], of the blocks; `a.count` is ignored. One of the two is null (MPI_Reduce_scatter and its
/// _c form).
Attempt attempt_reduce_scatter(const ReduceArguments& a, const int* counts,
                               const std::int64_t* large_counts);

struct Side {
  void* buffer;
  std::int64_t count;
  Raw type;
};
Attempt attempt_allgather(const Side& send, const Side& recv, Raw comm);
Attempt attempt_bcast(const Side& side, int root, Raw comm);
/// Only counts the call: see docs/decisions/020-preload-nonblocking.md.
Attempt attempt_iallreduce(const ReduceArguments& a);

/// Adds a call that was passed on to the statistics.
void count_passed(Attempt attempt, Raw comm, std::uint64_t nanoseconds);

/// What a wrapper does: attempts, and calls `next` where the call is to be passed on.
template <class Next>
int finish(const Attempt& attempt, Raw comm, Next&& next) {
  if (attempt.reason == Reason::accelerated) return attempt.code;
  if (!g_statistics) [[likely]]
    return next();
  const std::uint64_t began = clock_ns();
  const int code = next();
  count_passed(attempt, comm, clock_ns() - began);
  return code;
}

}  // namespace tamaki::mpi
