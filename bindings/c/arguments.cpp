#include "arguments.hpp"

#include <cstdint>

#include "guard.hpp"

namespace tamaki::c {
namespace {

static_assert(static_cast<int>(tmkNumTypes) == kDataTypes && static_cast<int>(tmkNumOps) == kPredefinedOps);
static_assert(static_cast<int>(DataType::bytes) == tmkBytes &&
              static_cast<int>(DataType::float32) == tmkFloat32 &&
              static_cast<int>(DataType::complex128) == tmkComplex128);
static_assert(static_cast<int>(ReduceOp::logical_xor) == tmkLogicalXor &&
              static_cast<int>(ReduceOp::avg) == tmkAvg);
static_assert(static_cast<int>(Code::internal) == tmkInternalError &&
              static_cast<int>(Code::timeout) == tmkTimeout);

// Bytes of any one buffer: the addressable range.
constexpr std::size_t kMostBytes = PTRDIFF_MAX;
// A count below it cannot overflow, whatever the type (16 bytes at most).
constexpr std::size_t kPlainCount = std::size_t{1} << 58;

// For each operation the set of types it is defined for, one bit a type.
constexpr std::array<std::uint32_t, kPredefinedOps + 2> kDefined = [] {
  std::array<std::uint32_t, kPredefinedOps + 2> sets{};
  for (int op = 0; op < kPredefinedOps + 2; ++op)
    for (int type = 0; type < kDataTypes; ++type)
      if (is_defined(static_cast<ReduceOp>(op), static_cast<DataType>(type)))
        sets[static_cast<std::size_t>(op)] |= 1u << type;
  return sets;
}();

[[gnu::cold]] tl::unexpected<Error> wrong(std::string message) {
  return fail(Code::invalid_argument, std::move(message));
}

[[gnu::cold, gnu::noinline]] Status wrong_type(tmkDataType_t type) {
  return wrong("type=" + std::to_string(static_cast<int>(type)) + " is not in 0.." +
               std::to_string(tmkNumTypes - 1));
}
[[gnu::cold, gnu::noinline]] Status wrong_rank(const tmkComm& comm, const char* name, int rank) {
  return wrong(std::string(name) + "=" + std::to_string(rank) + " is not a rank of the communicator (0.." +
               std::to_string(comm.ranks - 1) + ")");
}
[[gnu::cold, gnu::noinline]] Status wrong_op(tmkOp_t op) {
  return wrong("op=" + std::to_string(op) + " is neither predefined (0.." + std::to_string(tmkNumOps - 1) +
               ") nor an operation of this communicator");
}
[[gnu::cold, gnu::noinline]] Status undefined_op(ReduceOp op, DataType type) {
  return wrong("op " + std::string(name_of(op)) + " is not defined for type " + std::string(name_of(type)));
}
[[gnu::cold, gnu::noinline]] Status null_buffer(const char* name, std::size_t count, DataType type) {
  return wrong(std::string(name) + " is NULL, but " + std::to_string(count) + " elements of type " +
               std::string(name_of(type)) + " are to be there");
}
[[gnu::cold, gnu::noinline]] Status too_many(const char* name, std::size_t count, std::size_t blocks,
                                             DataType type) {
  return wrong(std::string(name) + "=" + std::to_string(count) +
               (blocks > 1 ? " in " + std::to_string(blocks) + " blocks" : std::string()) + " of type " +
               std::string(name_of(type)) + " is more than the address space holds (" +
               std::to_string(kMostBytes) + " bytes)");
}
[[gnu::cold, gnu::noinline]] Status no_place(const char* why) {
  return wrong(std::string("send is TMK_IN_PLACE, which ") + why);
}
[[gnu::cold, gnu::noinline]] Status wrong_recv(const char* why) {
  return wrong(std::string("recv is TMK_IN_PLACE, ") + why);
}

std::size_t width(const Call& call) { return size_of(call.type); }

Status set_type(tmkDataType_t type, Call* call) {
  if (static_cast<unsigned>(type) >= static_cast<unsigned>(tmkNumTypes)) [[unlikely]]
    return wrong_type(type);
  call->type = static_cast<DataType>(type);
  return {};
}

Status check_rank(const tmkComm& comm, const char* name, int rank) {
  if (static_cast<unsigned>(rank) >= static_cast<unsigned>(comm.ranks)) [[unlikely]]
    return wrong_rank(comm, name, rank);
  return {};
}

[[gnu::noinline]] Status set_user_op(const tmkComm& comm, tmkOp_t op, Call* call) {
  const OpContext* context = comm.ops.find(op);
  if (context == nullptr) return wrong_op(op);
  if (context->op == ReduceOp::pre_mul_sum && context->type != call->type)
    return wrong("op=" + std::to_string(op) + " multiplies by a scalar of type " +
                 std::string(name_of(context->type)) + ", but type is " + std::string(name_of(call->type)));
  call->op = *context;
  return {};
}

Status set_op(const tmkComm& comm, tmkOp_t op, Call* call) {
  if (static_cast<unsigned>(op) >= static_cast<unsigned>(tmkNumOps)) [[unlikely]]
    return set_user_op(comm, op, call);
  call->op.op = static_cast<ReduceOp>(op);
  if ((kDefined[static_cast<unsigned>(op)] >> static_cast<unsigned>(call->type) & 1u) == 0) [[unlikely]]
    return undefined_op(call->op.op, call->type);
  return {};
}

/// `blocks` blocks of `count` elements, at most what an address can reach.
Status check_count(const char* name, std::size_t count, int blocks, const Call& call) {
  if (blocks == 1 && count < kPlainCount) [[likely]]
    return {};
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, width(call) * static_cast<std::size_t>(blocks), &bytes) ||
      bytes > kMostBytes)
    return too_many(name, count, static_cast<std::size_t>(blocks), call.type);
  return {};
}

Status check_buffer(const char* name, const void* buffer, std::size_t count, const Call& call) {
  if (buffer == nullptr && count != 0) [[unlikely]]
    return null_buffer(name, count, call.type);
  return {};
}

/// recv, which must be a buffer.
Status check_recv(const void* recv, std::size_t count, const Call& call) {
  if (recv == TMK_IN_PLACE) [[unlikely]]
    return wrong_recv("which only send may be");
  return check_buffer("recv", recv, count, call);
}

/// Sum of counts[p], checked together with the displacements.
Status check_uneven(const tmkComm& comm, const char* counts_name, const Uneven& side, const Call& call,
                    std::size_t* total) {
  if (side.counts == nullptr) return null_argument(counts_name);
  const std::size_t most = kMostBytes / width(call);
  std::size_t sum = 0;
  for (int i = 0; i < comm.ranks; ++i) {
    const std::size_t count = side.counts[i];
    if (count > most || sum > most - count) {
      const std::string name = std::string(counts_name) + "[" + std::to_string(i) + "]";
      return too_many(name.c_str(), count, 1, call.type);
    }
    sum += count;
    if (side.displs != nullptr && side.displs[i] > most - count)
      return wrong("displacement " + std::to_string(side.displs[i]) + " of block " + std::to_string(i) +
                   " with " + std::to_string(count) + " elements of type " +
                   std::string(name_of(call.type)) + " ends beyond the address space");
  }
  *total = sum;
  return {};
}

/// Where block `index` begins, in elements. counts have been checked.
std::size_t offset_of(const Uneven& side, int index) {
  if (side.displs != nullptr) return side.displs[index];
  std::size_t offset = 0;
  for (int i = 0; i < index; ++i) offset += side.counts[i];
  return offset;
}

std::byte* bytes_of(void* p) { return static_cast<std::byte*>(p); }

void set_buffers(const void* send, void* recv, Call* call) {
  call->input = send;
  call->output = recv;
}

}  // namespace

Status check_type(tmkDataType_t type) {
  Call call;
  return set_type(type, &call);
}

Status fill_allreduce(const tmkComm& comm, const Vector& v, tmkOp_t op, Call* call) {
  call->collective = Collective::allreduce;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(set_op(comm, op, call));
  TMK_TRY(check_count("count", v.count, 1, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  set_buffers(v.send == TMK_IN_PLACE ? v.recv : v.send, v.recv, call);
  return {};
}

Status fill_reduce(const tmkComm& comm, const Vector& v, tmkOp_t op, int root, Call* call) {
  call->collective = Collective::reduce;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(set_op(comm, op, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, 1, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    TMK_TRY(check_recv(v.recv, v.count, *call));
    set_buffers(v.send == TMK_IN_PLACE ? v.recv : v.send, v.recv, call);
  } else {
    if (v.send == TMK_IN_PLACE) return no_place("has a meaning on the root only");
    set_buffers(v.send, nullptr, call);
  }
  return {};
}

Status fill_broadcast(const tmkComm& comm, const Vector& v, int root, Call* call) {
  call->collective = Collective::broadcast;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, 1, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    TMK_TRY(check_buffer("send", v.send, v.count, *call));
    set_buffers(v.send == TMK_IN_PLACE ? v.recv : v.send, v.recv, call);
  } else {
    set_buffers(nullptr, v.recv, call);
  }
  return {};
}

Status fill_allgather(const tmkComm& comm, const Vector& v, Call* call) {
  call->collective = Collective::allgather;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_count("count", v.count, comm.ranks, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  const std::size_t own = static_cast<std::size_t>(comm.rank) * v.count * width(*call);
  set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) + own : v.send, v.recv, call);
  return {};
}

Status fill_allgatherv(const tmkComm& comm, const Vector& v, const Uneven& recv, Call* call) {
  call->collective = Collective::allgather;
  call->uneven = true;
  TMK_TRY(set_type(v.type, call));
  std::size_t total = 0;
  TMK_TRY(check_uneven(comm, "counts", recv, *call, &total));
  const std::size_t own = recv.counts[comm.rank];
  TMK_TRY(check_recv(v.recv, total, *call));
  TMK_TRY(check_buffer("send", v.send, own, *call));
  call->count = own;
  call->recv_counts = recv.counts;
  call->recv_displacements = recv.displs;
  set_buffers(
      v.send == TMK_IN_PLACE ? bytes_of(v.recv) + offset_of(recv, comm.rank) * width(*call) : v.send,
      v.recv, call);
  return {};
}

Status fill_reduce_scatter(const tmkComm& comm, const Vector& v, tmkOp_t op, Call* call) {
  call->collective = Collective::reduce_scatter;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(set_op(comm, op, call));
  TMK_TRY(check_count("count", v.count, comm.ranks, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  const std::size_t own = static_cast<std::size_t>(comm.rank) * v.count * width(*call);
  set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) - own : v.send, v.recv, call);
  return {};
}

Status fill_reduce_scatterv(const tmkComm& comm, const Vector& v, const std::size_t* counts, tmkOp_t op,
                            Call* call) {
  call->collective = Collective::reduce_scatter;
  call->uneven = true;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(set_op(comm, op, call));
  const Uneven blocks{counts, nullptr};
  std::size_t total = 0;
  TMK_TRY(check_uneven(comm, "counts", blocks, *call, &total));
  const std::size_t own = counts[comm.rank];
  TMK_TRY(check_recv(v.recv, own, *call));
  TMK_TRY(check_buffer("send", v.send, total, *call));
  call->count = own;
  call->recv_counts = counts;
  set_buffers(
      v.send == TMK_IN_PLACE ? bytes_of(v.recv) - offset_of(blocks, comm.rank) * width(*call) : v.send,
      v.recv, call);
  return {};
}

Status fill_gather(const tmkComm& comm, const Vector& v, int root, Call* call) {
  call->collective = Collective::gather;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, comm.ranks, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    TMK_TRY(check_recv(v.recv, v.count, *call));
    const std::size_t own = static_cast<std::size_t>(root) * v.count * width(*call);
    set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) + own : v.send, v.recv, call);
  } else {
    if (v.send == TMK_IN_PLACE) return no_place("has a meaning on the root only");
    set_buffers(v.send, nullptr, call);
  }
  return {};
}

Status fill_gatherv(const tmkComm& comm, const Vector& v, const Uneven& recv, int root, Call* call) {
  call->collective = Collective::gather;
  call->uneven = true;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, 1, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    std::size_t total = 0;
    TMK_TRY(check_uneven(comm, "counts", recv, *call, &total));
    TMK_TRY(check_recv(v.recv, total, *call));
    if (recv.counts[root] != v.count)
      return wrong("count=" + std::to_string(v.count) + " differs from counts[" + std::to_string(root) +
                   "]=" + std::to_string(recv.counts[root]) + " of the root itself");
    call->recv_counts = recv.counts;
    call->recv_displacements = recv.displs;
    set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) + offset_of(recv, root) * width(*call) : v.send,
                v.recv, call);
  } else {
    if (v.send == TMK_IN_PLACE) return no_place("has a meaning on the root only");
    set_buffers(v.send, nullptr, call);
  }
  return {};
}

Status fill_scatter(const tmkComm& comm, const Vector& v, int root, Call* call) {
  call->collective = Collective::scatter;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, comm.ranks, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    TMK_TRY(check_buffer("send", v.send, v.count, *call));
    const std::size_t own = static_cast<std::size_t>(root) * v.count * width(*call);
    set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) - own : v.send, v.recv, call);
  } else {
    set_buffers(nullptr, v.recv, call);
  }
  return {};
}

Status fill_scatterv(const tmkComm& comm, const Vector& v, const Uneven& send, int root, Call* call) {
  call->collective = Collective::scatter;
  call->uneven = true;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_rank(comm, "root", root));
  TMK_TRY(check_count("count", v.count, 1, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  call->count = v.count;
  call->root = root;
  if (comm.rank == root) {
    std::size_t total = 0;
    TMK_TRY(check_uneven(comm, "counts", send, *call, &total));
    TMK_TRY(check_buffer("send", v.send, total, *call));
    if (send.counts[root] != v.count)
      return wrong("count=" + std::to_string(v.count) + " differs from counts[" + std::to_string(root) +
                   "]=" + std::to_string(send.counts[root]) + " of the root itself");
    call->send_counts = send.counts;
    call->send_displacements = send.displs;
    set_buffers(v.send == TMK_IN_PLACE ? bytes_of(v.recv) - offset_of(send, root) * width(*call) : v.send,
                v.recv, call);
  } else {
    set_buffers(nullptr, v.recv, call);
  }
  return {};
}

Status fill_alltoall(const tmkComm& comm, const Vector& v, Call* call) {
  call->collective = Collective::alltoall;
  TMK_TRY(set_type(v.type, call));
  TMK_TRY(check_count("count", v.count, comm.ranks, *call));
  TMK_TRY(check_recv(v.recv, v.count, *call));
  TMK_TRY(check_buffer("send", v.send, v.count, *call));
  call->count = v.count;
  set_buffers(v.send == TMK_IN_PLACE ? v.recv : v.send, v.recv, call);
  return {};
}

Status fill_alltoallv(const tmkComm& comm, const Vector& v, const Uneven& send, const Uneven& recv,
                      Call* call) {
  call->collective = Collective::alltoall;
  call->uneven = true;
  TMK_TRY(set_type(v.type, call));
  if (v.send == TMK_IN_PLACE) return no_place("alltoallv has no form for");
  std::size_t sent = 0, received = 0;
  TMK_TRY(check_uneven(comm, "send_counts", send, *call, &sent));
  TMK_TRY(check_uneven(comm, "recv_counts", recv, *call, &received));
  TMK_TRY(check_recv(v.recv, received, *call));
  TMK_TRY(check_buffer("send", v.send, sent, *call));
  if (send.counts[comm.rank] != recv.counts[comm.rank])
    return wrong("send_counts[" + std::to_string(comm.rank) +
                 "]=" + std::to_string(send.counts[comm.rank]) + " differs from recv_counts[" +
                 std::to_string(comm.rank) + "]=" + std::to_string(recv.counts[comm.rank]) +
                 " of the rank itself");
  call->send_counts = send.counts;
  call->send_displacements = send.displs;
  call->recv_counts = recv.counts;
  call->recv_displacements = recv.displs;
  set_buffers(v.send, v.recv, call);
  return {};
}

Status fill_barrier(Call* call) {
  call->collective = Collective::barrier;
  call->type = DataType::bytes;
  return {};
}

Status fill_send(const tmkComm& comm, const void* send, const Message& to, tmkDataType_t type, Call* call) {
  call->collective = Collective::send_recv;
  TMK_TRY(set_type(type, call));
  TMK_TRY(check_rank(comm, "peer", to.peer));
  TMK_TRY(check_count("count", to.count, 1, *call));
  if (send == TMK_IN_PLACE) return no_place("has a meaning in collectives only");
  TMK_TRY(check_buffer("send", send, to.count, *call));
  call->count = to.count;
  call->destination = to.peer;
  set_buffers(send, nullptr, call);
  return {};
}

Status fill_recv(const tmkComm& comm, void* recv, const Message& from, tmkDataType_t type, Call* call) {
  call->collective = Collective::send_recv;
  TMK_TRY(set_type(type, call));
  TMK_TRY(check_rank(comm, "peer", from.peer));
  TMK_TRY(check_count("count", from.count, 1, *call));
  TMK_TRY(check_recv(recv, from.count, *call));
  call->count = from.count;
  call->recv_count = from.count;
  call->source = from.peer;
  set_buffers(nullptr, recv, call);
  return {};
}

Status fill_sendrecv(const tmkComm& comm, const void* send, const Message& to, void* recv,
                     const Message& from, tmkDataType_t type, Call* call) {
  call->collective = Collective::send_recv;
  TMK_TRY(set_type(type, call));
  TMK_TRY(check_rank(comm, "dest", to.peer));
  TMK_TRY(check_rank(comm, "source", from.peer));
  TMK_TRY(check_count("send_count", to.count, 1, *call));
  TMK_TRY(check_count("recv_count", from.count, 1, *call));
  if (send == TMK_IN_PLACE) return no_place("has a meaning in collectives only");
  TMK_TRY(check_recv(recv, from.count, *call));
  TMK_TRY(check_buffer("send", send, to.count, *call));
  call->count = to.count;
  call->recv_count = from.count;
  call->destination = to.peer;
  call->source = from.peer;
  set_buffers(send, recv, call);
  return {};
}

}  // namespace tamaki::c
