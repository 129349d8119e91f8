// Fortran entry points, for Open MPI only: its Fortran layer calls PMPI_, so that the C wrappers never see
// these calls. MPICH's calls the MPI_ functions; wrapping its Fortran names as well would count calls
// twice.
//
// mpif.h and `use mpi` call mpi_x_ (or another spelling, by compiler); `use mpi_f08` calls mpi_x_f08_,
// where handles are structures of one integer, passed by address as well, and ierror may be absent, a null
// address. Buffers are plain addresses in all of them.

#include "collectives.hpp"
#include "library.hpp"

#ifndef OPEN_MPI
#error "for Open MPI only"
#endif

namespace tamaki::mpi {
namespace {

/// A sentinel of Fortran is the address of a common block, which exists in four spellings.
class Sentinel {
 public:
  constexpr Sentinel(const char* a, const char* b, const char* c, const char* d) : names_{a, b, c, d} {}
  bool is(const void* address) {
    if (!known_.load(std::memory_order_acquire)) {
      for (int i = 0; i < 4; ++i) addresses_[i].store(find_global(names_[i]), std::memory_order_relaxed);
      known_.store(true,
                   std::memory_order_release);  // pairs with the acquire; threads store the same words
    }
    for (const auto& known : addresses_)
      if (address == known.load(std::memory_order_relaxed) && address != nullptr) return true;
    return false;
  }

 private:
  const char* names_[4];
  std::atomic<void*> addresses_[4] = {};
  std::atomic<bool> known_{false};
};
Sentinel in_place{"mpi_fortran_in_place_", "mpi_fortran_in_place", "mpi_fortran_in_place__",
                  "MPI_FORTRAN_IN_PLACE"};
Sentinel bottom{"mpi_fortran_bottom_", "mpi_fortran_bottom", "mpi_fortran_bottom__", "MPI_FORTRAN_BOTTOM"};

void* buffer_of(void* address) {
  if (in_place.is(address)) return MPI_IN_PLACE;
  if (bottom.is(address)) return MPI_BOTTOM;
  return address;
}
Raw comm_of(const int* handle) { return to_raw(library().PComm_f2c(*handle)); }
Raw type_of(const int* handle) { return to_raw(library().PType_f2c(*handle)); }
Raw op_of(const int* handle) { return to_raw(library().POp_f2c(*handle)); }

template <class Signature, class... Arguments>
void pass_on(Next<Signature>& next, Arguments... arguments) {
  if (Signature* function = next.get()) function(arguments...);
}

/// As finish() in C: the code goes to *error, which the next definition sets itself.
template <class Pass>
void conclude(const Attempt& attempt, Raw comm, int* error, Pass&& pass) {
  const int code = finish(attempt, comm, [&] {
    pass();
    return MPI_SUCCESS;
  });
  if (attempt.reason == Reason::accelerated && error != nullptr) *error = code;
}

using Reducing = void(void*, void*, int*, int*, int*, int*, int*);
using Allgather = void(void*, int*, int*, void*, int*, int*, int*, int*);
using Bcast = void(void*, int*, int*, int*, int*, int*);
using Iallreduce = void(void*, void*, int*, int*, int*, int*, int*, int*);

template <Attempt (*attempt)(const ReduceArguments&)>
void reducing(Next<Reducing>& next, void* send, void* recv, int* count, int* type, int* op, int* comm,
              int* error) {
  const auto pass = [&] { pass_on(next, send, recv, count, type, op, comm, error); };
  if (!running()) return pass();
  const Raw c = comm_of(comm);
  conclude(attempt({buffer_of(send), buffer_of(recv), *count, type_of(type), op_of(op), c}), c, error,
           pass);
}

void reduce_scatter(Next<Reducing>& next, void* send, void* recv, int* counts, int* type, int* op,
                    int* comm, int* error) {
  const auto pass = [&] { pass_on(next, send, recv, counts, type, op, comm, error); };
  if (!running()) return pass();
  const Raw c = comm_of(comm);
  conclude(attempt_reduce_scatter({buffer_of(send), buffer_of(recv), 0, type_of(type), op_of(op), c},
                                  counts, nullptr),
           c, error, pass);
}

void allgather(Next<Allgather>& next, void* send, int* send_count, int* send_type, void* recv,
               int* recv_count, int* recv_type, int* comm, int* error) {
  const auto pass = [&] {
    pass_on(next, send, send_count, send_type, recv, recv_count, recv_type, comm, error);
  };
  if (!running()) return pass();
  const Raw c = comm_of(comm);
  void* from = buffer_of(send);
  // In place, the send type is not significant and may be no handle at all.
  const Raw from_type = from == MPI_IN_PLACE ? nullptr : type_of(send_type);
  conclude(attempt_allgather({from, *send_count, from_type},
                             {buffer_of(recv), *recv_count, type_of(recv_type)}, c),
           c, error, pass);
}

void bcast(Next<Bcast>& next, void* buffer, int* count, int* type, int* root, int* comm, int* error) {
  const auto pass = [&] { pass_on(next, buffer, count, type, root, comm, error); };
  if (!running()) return pass();
  const Raw c = comm_of(comm);
  conclude(attempt_bcast({buffer_of(buffer), *count, type_of(type)}, *root, c), c, error, pass);
}

void iallreduce(Next<Iallreduce>& next, void* send, void* recv, int* count, int* type, int* op, int* comm,
                int* request, int* error) {
  const auto pass = [&] { pass_on(next, send, recv, count, type, op, comm, request, error); };
  if (!running()) return pass();
  const Raw c = comm_of(comm);
  conclude(attempt_iallreduce({send, recv, *count, type_of(type), op_of(op), c}), c, error, pass);
}

}  // namespace

#define TAMAKI_ENTRY(label, Signature, implementation, parameters, ...)                     \
  extern "C" [[gnu::visibility("default")]] void tamaki_##label parameters __asm__(#label); \
  namespace {                                                                               \
  constinit Next<Signature> next_##label{#label};                                           \
  }                                                                                         \
  extern "C" void tamaki_##label parameters { implementation(next_##label, __VA_ARGS__); }

#define TAMAKI_ENTRIES(lower, UPPER, ...) \
  TAMAKI_ENTRY(lower, __VA_ARGS__)        \
  TAMAKI_ENTRY(lower##_, __VA_ARGS__)     \
  TAMAKI_ENTRY(lower##__, __VA_ARGS__)    \
  TAMAKI_ENTRY(UPPER, __VA_ARGS__)        \
  TAMAKI_ENTRY(lower##_f08_, __VA_ARGS__)

TAMAKI_ENTRIES(mpi_allreduce, MPI_ALLREDUCE, Reducing, reducing<attempt_allreduce>,
               (void* a, void* b, int* c, int* d, int* e, int* f, int* g), a, b, c, d, e, f, g)
TAMAKI_ENTRIES(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK, Reducing,
               reducing<attempt_reduce_scatter_block>,
               (void* a, void* b, int* c, int* d, int* e, int* f, int* g), a, b, c, d, e, f, g)
TAMAKI_ENTRIES(mpi_reduce_scatter, MPI_REDUCE_SCATTER, Reducing, reduce_scatter,
               (void* a, void* b, int* c, int* d, int* e, int* f, int* g), a, b, c, d, e, f, g)
TAMAKI_ENTRIES(mpi_allgather, MPI_ALLGATHER, Allgather, allgather,
               (void* a, int* b, int* c, void* d, int* e, int* f, int* g, int* h), a, b, c, d, e, f, g, h)
TAMAKI_ENTRIES(mpi_bcast, MPI_BCAST, Bcast, bcast, (void* a, int* b, int* c, int* d, int* e, int* f), a, b,
               c, d, e, f)
TAMAKI_ENTRIES(mpi_iallreduce, MPI_IALLREDUCE, Iallreduce, iallreduce,
               (void* a, void* b, int* c, int* d, int* e, int* f, int* g, int* h), a, b, c, d, e, f, g, h)

}  // namespace tamaki::mpi
