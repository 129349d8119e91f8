#include "collectives.hpp"

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/log.hpp"
#include "handles.hpp"
#include "library.hpp"

namespace tamaki::mpi {
namespace {

Attempt passed(Attempt attempt, Reason reason) {
  attempt.reason = reason;
  return attempt;
}

/// Whether this call of `attempt.bytes` > 0 is ours, on a communicator of which every rank makes the same
/// call now. Sets attempt.state, and attempt.reason where it is not.
bool admit(Attempt& attempt, Raw comm) {
  State* state = state_of(comm);
  attempt.state = state;
  if (state == nullptr) {
    attempt.reason = Reason::argument;
    return false;
  }
  if (state->mode == Mode::fresh) [[unlikely]] {
    if (!due_for_setup(*state, attempt.bytes)) {
      attempt.reason = Reason::early;
      return false;
    }
    set_up(*state);
  }
  if (state->mode == Mode::passed) {
    attempt.reason = state->reason;
    return false;
  }
  if (attempt.bytes < state->min_bytes || attempt.bytes > state->max_bytes) {
    attempt.reason = attempt.bytes < state->min_bytes ? Reason::small : Reason::large;
    return false;
  }
  return true;
}

/// A call that Tamaki did not serve. Where no algorithm may serve it (a rule of the user names one that cannot), all ranks
/// find that out before anything is sent, and MPI has it.
int not_run(Attempt& attempt, const tamaki::Call& call, const Error& error) {
  State& state = *attempt.state;
  if (error.code != Code::invalid_usage || error.scope != Scope::request || state.tamaki->algorithm_for(call))
    return raise(state, error);
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) log(Level::warn, "calls that a rule leaves without an algorithm go to MPI: " + error.message);
  attempt.reason = Reason::unserved;
  return MPI_SUCCESS;
}

/// Runs the call, or sets attempt.reason. Result: MPI's code.
int run(Attempt& attempt, const tamaki::Call& call) {
  State& state = *attempt.state;
  state.clock.began_ns = 0;
  if (!g_statistics) [[likely]] {
    const Status status = state.tamaki->run(call);
    return status ? MPI_SUCCESS : not_run(attempt, call, status.error());
  }
  const std::string& algorithm = algorithm_of(state, call);
  const std::uint64_t began = clock_ns();
  const Status status = state.tamaki->run(call);
  const std::uint64_t took = clock_ns() - began;
  const int code = status ? MPI_SUCCESS : not_run(attempt, call, status.error());
  if (attempt.reason == Reason::accelerated) count(&state, attempt.call, Reason::accelerated, algorithm, attempt.bytes, took);
  return code;
}

/// The call was run and went well.
bool served(const Attempt& attempt) { return attempt.code == MPI_SUCCESS && attempt.reason == Reason::accelerated; }

/// The part of the decision that needs no communicator. `elements`: of the whole vector.
bool eligible(Attempt& attempt, const ReduceArguments& a, std::int64_t elements, tamaki::Call* call) {
  if (!running()) {
    attempt.reason = Reason::not_running;
    return false;
  }
  if (elements < 0) {
    attempt.reason = Reason::argument;
    return false;
  }
  const TypeInfo* type = find_type(a.type);
  const ReduceOp* op = find_op(a.op);
  if (type != nullptr) attempt.bytes = static_cast<std::uint64_t>(elements) * type->size;
  if (type == nullptr || type->group == TypeGroup::movable)
    attempt.reason = Reason::type;
  else if (op == nullptr)
    attempt.reason = Reason::operation;
  else if (!is_supported(*op, *type))
    attempt.reason = Reason::pair;
  else if (elements == 0)
    attempt.reason = Reason::nothing;
  else if (a.send == nullptr || a.recv == MPI_IN_PLACE)
    attempt.reason = Reason::argument;
  if (attempt.reason != Reason::accelerated) return false;
  call->type = type->type;
  call->op.op = *op;
  return true;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory allocate(std::size_t bytes) {
  return Memory(static_cast<std::byte*>(std::malloc(bytes != 0 ? bytes : 1)));
}

int out_of_memory(State& state, std::size_t bytes) {
  return raise(state, {Code::out_of_memory, Scope::request,
                       "no " + std::to_string(bytes) + " bytes of memory for packed data"});
}

/// A message as MPI describes it: `dense` where its bytes lie in the buffer as they are packed.
struct Layout {
  std::uint64_t bytes = 0;
  bool known = false;
  bool dense = false;
};

Layout layout_of(const Side& side, MPI_Datatype null_type) {
  Layout layout;
  if (side.count < 0) return layout;
  if (const TypeInfo* type = find_type(side.type)) {
    layout.dense = true;
    layout.known =
        !__builtin_mul_overflow(static_cast<std::uint64_t>(side.count), type->size, &layout.bytes);
    return layout;
  }
  const auto type = from_raw<MPI_Datatype>(side.type);
  int size = 0;
  if (type == null_type || side.type == nullptr || library().PType_size(type, &size) != MPI_SUCCESS ||
      size < 0)
    return layout;
  layout.known = !__builtin_mul_overflow(static_cast<std::uint64_t>(side.count),
                                         static_cast<std::uint64_t>(size), &layout.bytes);
  return layout;
}

MPI_Datatype null_type() {
  static const auto type = TAMAKI_HANDLE(MPI_Datatype, MPI_DATATYPE_NULL, "datatype_null");
  return type;
}

// MPICH refuses to pack from or to MPI_BOTTOM, a null pointer. The same data seen from another address: one
// element of a type that is displaced by minus that address. Calls work(buffer, count, type).
template <class Work>
int from_somewhere(const Side& side, Work&& work) {
  auto type = from_raw<MPI_Datatype>(side.type);
  if (side.buffer != nullptr) return work(side.buffer, static_cast<int>(side.count), type);
  static std::byte somewhere;
  MPI_Datatype displaced;
  const int count = static_cast<int>(side.count);
  const MPI_Aint back = -static_cast<MPI_Aint>(reinterpret_cast<std::intptr_t>(&somewhere));
  const Library& mpi = library();
  int code = mpi.PType_create_hindexed(1, &count, &back, type, &displaced);
  if (code != MPI_SUCCESS) return code;
  code = mpi.PType_commit(&displaced);
  if (code == MPI_SUCCESS) code = work(static_cast<void*>(&somewhere), 1, displaced);
  mpi.PType_free(&displaced);
  return code;
}

// Packed data of the MPIs this library is built for are the plain bytes of the type signature, without a
// header: what one rank packs, another receives as a dense type. `bytes` is what the layout says, at most
// INT_MAX.
int pack(const Side& side, std::byte* into, std::uint64_t bytes, Raw comm) {
  return from_somewhere(side, [&](void* buffer, int count, MPI_Datatype type) {
    int position = 0;
    return library().PPack(buffer, count, type, into, static_cast<int>(bytes), &position,
                           from_raw<MPI_Comm>(comm));
  });
}

int unpack(const Side& side, const std::byte* from, std::uint64_t bytes, Raw comm) {
  return from_somewhere(side, [&](void* buffer, int count, MPI_Datatype type) {
    int position = 0;
    return library().PUnpack(from, static_cast<int>(bytes), &position, buffer, count, type,
                             from_raw<MPI_Comm>(comm));
  });
}

}  // namespace

Attempt attempt_allreduce(const ReduceArguments& a) {
  Attempt attempt{Call::allreduce};
  tamaki::Call call;
  if (!eligible(attempt, a, a.count, &call)) return attempt;
  const bool in_place = a.send == MPI_IN_PLACE;
  // The same buffer twice is an error, which MPI reports; only Open MPI lets it pass with one element, and
  // so must we.
  const bool same = a.send == a.recv;
  if (a.recv == nullptr || (same && !(kOpenMpi && a.count == 1))) return passed(attempt, Reason::argument);
  if (!admit(attempt, canonical(a.comm))) return attempt;
  call.collective = Collective::allreduce;
  call.count = static_cast<std::size_t>(a.count);
  call.input = in_place ? a.recv : a.send;
  call.output = a.recv;
  attempt.code = run(attempt, call);
  return attempt;
}

Attempt attempt_reduce_scatter_block(const ReduceArguments& a) {
  Attempt attempt{Call::reduce_scatter_block};
  tamaki::Call call;
  if (!eligible(attempt, a, a.count, &call)) return attempt;
  if (a.recv == nullptr || (a.send == a.recv && !kOpenMpi)) return passed(attempt, Reason::argument);
  State* state = state_of(canonical(a.comm));
  if (state == nullptr ||
      __builtin_mul_overflow(attempt.bytes, static_cast<std::uint64_t>(state->ranks), &attempt.bytes))
    return passed(attempt, Reason::argument);
  if (!admit(attempt, canonical(a.comm))) return attempt;
  call.collective = Collective::reduce_scatter;
  call.count = static_cast<std::size_t>(a.count);
  call.input = a.send;
  call.output = a.recv;
  if (a.send != MPI_IN_PLACE && a.send != a.recv) {
    attempt.code = run(attempt, call);
    return attempt;
  }
  // MPI's in-place form takes the vector from recv and leaves the block at its start, over data of other
  // blocks. The same buffer twice, which Open MPI lets pass, may occur on rank 0 alone (recv = send + rank
  // * count).
  const std::size_t block = call.count * size_of(call.type);
  const Memory result = allocate(block);
  if (!result) {
    attempt.code = out_of_memory(*attempt.state, block);
    return attempt;
  }
  call.input = a.recv;
  call.output = result.get();
  attempt.code = run(attempt, call);
  if (served(attempt)) std::memcpy(a.recv, result.get(), block);
  return attempt;
}

Attempt attempt_reduce_scatter(const ReduceArguments& a, const int* counts,
                               const std::int64_t* large_counts) {
  Attempt attempt{Call::reduce_scatter};
  if (!running()) return passed(attempt, Reason::not_running);
  if (counts == nullptr && large_counts == nullptr) return passed(attempt, Reason::argument);
  State* state = state_of(canonical(a.comm));
  if (state == nullptr) return passed(attempt, Reason::argument);
  attempt.state = state;
  if (state->mode == Mode::passed && state->reason == Reason::intercommunicator)
    return passed(attempt, state->reason);  // counts there are of the local group
  thread_local std::vector<std::size_t> blocks;
  blocks.clear();
  std::int64_t total = 0;
  for (int r = 0; r < state->ranks; ++r) {
    const std::int64_t n = counts != nullptr ? counts[r] : large_counts[r];
    if (n < 0 || __builtin_add_overflow(total, n, &total)) return passed(attempt, Reason::argument);
    blocks.push_back(static_cast<std::size_t>(n));
  }
  tamaki::Call call;
  if (!eligible(attempt, a, total, &call)) return attempt;
  const std::size_t own = blocks[static_cast<std::size_t>(state->rank)];
  if ((a.recv == nullptr && own != 0) || (a.send == a.recv && !kOpenMpi))
    return passed(attempt, Reason::argument);
  if (!admit(attempt, canonical(a.comm))) return attempt;
  call.collective = Collective::reduce_scatter;
  call.count = own;
  call.uneven = true;
  call.recv_counts = blocks.data();
  call.input = a.send;
  call.output = a.recv;
  const std::size_t bytes = own * size_of(call.type);
  if (a.send != MPI_IN_PLACE && a.send != a.recv && own != 0) {
    attempt.code = run(attempt, call);
    return attempt;
  }
  // In place as above. A rank without a block may have no receive buffer at all.
  const Memory result = allocate(bytes);
  if (!result) {
    attempt.code = out_of_memory(*attempt.state, bytes);
    return attempt;
  }
  if (a.send == MPI_IN_PLACE) call.input = a.recv;
  call.output = result.get();
  attempt.code = run(attempt, call);
  if (served(attempt) && bytes != 0) std::memcpy(a.recv, result.get(), bytes);
  return attempt;
}

Attempt attempt_bcast(const Side& side, int root, Raw raw_comm) {
  Attempt attempt{Call::broadcast};
  if (!running()) return passed(attempt, Reason::not_running);
  const Raw comm = canonical(raw_comm);
  const Layout layout = layout_of(side, null_type());
  attempt.bytes = layout.bytes;
  if (!layout.known || (layout.dense && side.buffer == nullptr && layout.bytes != 0))
    return passed(attempt, Reason::argument);
  if (layout.bytes == 0) return passed(attempt, Reason::nothing);
  if (layout.bytes > INT_MAX) return passed(attempt, Reason::huge);
  State* state = state_of(comm);
  if (state == nullptr) return passed(attempt, Reason::argument);
  attempt.state = state;
  if (state->reason != Reason::intercommunicator && (root < 0 || root >= state->ranks))
    return passed(attempt, Reason::argument);
  if (!admit(attempt, comm)) return attempt;
  tamaki::Call call;
  call.collective = Collective::broadcast;
  call.type = DataType::bytes;
  call.count = layout.bytes;
  call.root = root;
  if (layout.dense) {
    call.input = call.output = side.buffer;
    attempt.code = run(attempt, call);
    return attempt;
  }
  const Memory packed = allocate(layout.bytes);
  if (!packed) {
    attempt.code = out_of_memory(*state, layout.bytes);
    return attempt;
  }
  call.input = call.output = packed.get();
  if (state->rank == root) attempt.code = pack(side, packed.get(), layout.bytes, comm);
  if (attempt.code == MPI_SUCCESS) attempt.code = run(attempt, call);
  if (served(attempt) && state->rank != root)
    attempt.code = unpack(side, packed.get(), layout.bytes, comm);
  return attempt;
}

Attempt attempt_allgather(const Side& send, const Side& recv, Raw raw_comm) {
  Attempt attempt{Call::allgather};
  if (!running()) return passed(attempt, Reason::not_running);
  const Raw comm = canonical(raw_comm);
  const bool in_place = send.buffer == MPI_IN_PLACE;
  const Layout to = layout_of(recv, null_type());
  const Layout from = in_place ? to : layout_of(send, null_type());
  attempt.bytes = to.bytes;
  if (!to.known || !from.known || from.bytes != to.bytes || recv.buffer == MPI_IN_PLACE)
    return passed(attempt, Reason::argument);
  if (to.bytes == 0) return passed(attempt, Reason::nothing);
  if (to.bytes > INT_MAX) return passed(attempt, Reason::huge);
  if ((to.dense && recv.buffer == nullptr) || (from.dense && send.buffer == nullptr))
    return passed(attempt, Reason::argument);
  State* state = state_of(comm);
  if (state == nullptr) return passed(attempt, Reason::argument);
  attempt.state = state;
  const auto ranks = static_cast<std::size_t>(state->ranks);
  const auto rank = static_cast<std::size_t>(state->rank);
  // MPICH calls it an error to send from the own block; to Open MPI it is as good as in place.
  if (!kOpenMpi && to.dense && !in_place &&
      send.buffer == static_cast<std::byte*>(recv.buffer) + rank * to.bytes)
    return passed(attempt, Reason::argument);
  if (!admit(attempt, comm)) return attempt;
  tamaki::Call call;
  call.collective = Collective::allgather;
  call.type = DataType::bytes;
  call.count = to.bytes;

  Memory gathered, packed;
  auto* all = static_cast<std::byte*>(recv.buffer);
  if (!to.dense) {
    gathered = allocate(ranks * to.bytes);
    if (!gathered) {
      attempt.code = out_of_memory(*state, ranks * to.bytes);
      return attempt;
    }
    all = gathered.get();
  }
  MPI_Aint lower = 0, extent = 0;
  if (!to.dense) {
    attempt.code = library().PType_get_extent(from_raw<MPI_Datatype>(recv.type), &lower, &extent);
    if (attempt.code != MPI_SUCCESS) return attempt;
  }
  // The receive buffer's address may be MPI_BOTTOM, zero: arithmetic on integers.
  const auto block = [&](std::size_t r) {
    const auto offset = static_cast<std::intptr_t>(r) * static_cast<std::intptr_t>(recv.count) * extent;
    return Side{reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(recv.buffer) + offset), recv.count,
                recv.type};
  };
  call.output = all;
  call.input = send.buffer;
  if (in_place) {
    call.input = all + rank * to.bytes;
    if (!to.dense) attempt.code = pack(block(rank), all + rank * to.bytes, to.bytes, comm);
  } else if (!from.dense) {
    packed = allocate(from.bytes);
    if (!packed) {
      attempt.code = out_of_memory(*state, from.bytes);
      return attempt;
    }
    attempt.code = pack(send, packed.get(), from.bytes, comm);
    call.input = packed.get();
  }
  if (attempt.code == MPI_SUCCESS) attempt.code = run(attempt, call);
  if (!to.dense)
    for (std::size_t r = 0; r < ranks && served(attempt); ++r)
      attempt.code = unpack(block(r), all + r * to.bytes, to.bytes, comm);
  return attempt;
}

Attempt attempt_iallreduce(const ReduceArguments& a) {
  Attempt attempt{Call::iallreduce, Reason::nonblocking};
  if (!running()) return passed(attempt, Reason::not_running);
  if (const TypeInfo* type = find_type(a.type); type != nullptr && a.count > 0)
    attempt.bytes = static_cast<std::uint64_t>(a.count) * type->size;
  return attempt;
}

void count_passed(Attempt attempt, Raw comm, std::uint64_t nanoseconds) {
  // Looking a communicator up is local, so that it may happen on some ranks only. A program that ends
  // inside the call (MPI_Abort in an error handler) leaves no trace of it.
  if (attempt.state == nullptr && running()) attempt.state = state_of(canonical(comm));
  count(attempt.state, attempt.call, attempt.reason, {}, attempt.bytes, nanoseconds);
}

}  // namespace tamaki::mpi
