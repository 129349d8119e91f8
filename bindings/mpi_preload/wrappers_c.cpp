// The MPI functions that this library defines in front of MPI's own.
//
// They are written under other names with MPI's as their assembler names, because they take handles as
// whole registers (Raw), not with the types of mpi.h.

#include "collectives.hpp"
#include "library.hpp"

namespace tamaki::mpi {
namespace {

/// Calls the next definition of a function.
template <class Signature, class... Arguments>
int pass_on(Next<Signature>& next, Arguments... arguments) {
  Signature* function = next.get();
  return function != nullptr ? function(arguments...) : MPI_ERR_OTHER;  // no MPI in this process
}

// C callers give the address; the attempts change no send buffer.
void* writable(const void* buffer) { return const_cast<void*>(buffer); }

}  // namespace

// A wrapper and the Next of its name. `label` is the public name.
#define TAMAKI_WRAP(label, parameters)                                                     \
  extern "C" [[gnu::visibility("default")]] int tamaki_##label parameters __asm__(#label); \
  namespace {                                                                              \
  constinit Next<int parameters> next_##label{#label};                                     \
  }                                                                                        \
  extern "C" int tamaki_##label parameters

// The same text serves a function and its MPI-4 form with MPI_Count.
#define TAMAKI_WRAP_REDUCING(label, Count, attempt)                                             \
  TAMAKI_WRAP(label, (const void* send, void* recv, Count count, Raw type, Raw op, Raw comm)) { \
    return finish(attempt({send, recv, count, type, op, comm}), comm,                           \
                  [&] { return pass_on(next_##label, send, recv, count, type, op, comm); });    \
  }
#define TAMAKI_WRAP_REDUCE_SCATTER(label, Count, small_counts, large_counts)                            \
  TAMAKI_WRAP(label, (const void* send, void* recv, const Count* counts, Raw type, Raw op, Raw comm)) { \
    return finish(attempt_reduce_scatter({send, recv, 0, type, op, comm}, small_counts, large_counts),  \
                  comm, [&] { return pass_on(next_##label, send, recv, counts, type, op, comm); });     \
  }
#define TAMAKI_WRAP_ALLGATHER(label, Count)                                                              \
  TAMAKI_WRAP(label, (const void* send, Count send_count, Raw send_type, void* recv, Count recv_count,   \
                      Raw recv_type, Raw comm)) {                                                        \
    return finish(                                                                                       \
        attempt_allgather({writable(send), send_count, send_type}, {recv, recv_count, recv_type}, comm), \
        comm, [&] {                                                                                      \
          return pass_on(next_##label, send, send_count, send_type, recv, recv_count, recv_type, comm);  \
        });                                                                                              \
  }
#define TAMAKI_WRAP_BCAST(label, Count)                                                    \
  TAMAKI_WRAP(label, (void* buffer, Count count, Raw type, int root, Raw comm)) {          \
    return finish(attempt_bcast({buffer, count, type}, root, comm), comm,                  \
                  [&] { return pass_on(next_##label, buffer, count, type, root, comm); }); \
  }
#define TAMAKI_WRAP_IALLREDUCE(label, Count)                                                            \
  TAMAKI_WRAP(label,                                                                                    \
              (const void* send, void* recv, Count count, Raw type, Raw op, Raw comm, void* request)) { \
    return finish(attempt_iallreduce({send, recv, count, type, op, comm}), comm,                        \
                  [&] { return pass_on(next_##label, send, recv, count, type, op, comm, request); });   \
  }

TAMAKI_WRAP_REDUCING(MPI_Allreduce, int, attempt_allreduce)
TAMAKI_WRAP_REDUCING(MPI_Reduce_scatter_block, int, attempt_reduce_scatter_block)
TAMAKI_WRAP_REDUCE_SCATTER(MPI_Reduce_scatter, int, counts, nullptr)
TAMAKI_WRAP_ALLGATHER(MPI_Allgather, int)
TAMAKI_WRAP_BCAST(MPI_Bcast, int)
TAMAKI_WRAP_IALLREDUCE(MPI_Iallreduce, int)

// Ranks may mix a function with its large form, so both are served or neither. Open MPI 4 and 5 have no
// large forms.
#ifndef OPEN_MPI
static_assert(sizeof(MPI_Count) == sizeof(std::int64_t));
TAMAKI_WRAP_REDUCING(MPI_Allreduce_c, std::int64_t, attempt_allreduce)
TAMAKI_WRAP_REDUCING(MPI_Reduce_scatter_block_c, std::int64_t, attempt_reduce_scatter_block)
TAMAKI_WRAP_REDUCE_SCATTER(MPI_Reduce_scatter_c, std::int64_t, nullptr, counts)
TAMAKI_WRAP_ALLGATHER(MPI_Allgather_c, std::int64_t)
TAMAKI_WRAP_BCAST(MPI_Bcast_c, std::int64_t)
TAMAKI_WRAP_IALLREDUCE(MPI_Iallreduce_c, std::int64_t)
#endif

}  // namespace tamaki::mpi
