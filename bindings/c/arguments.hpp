#pragma once
// The arguments of the C operations, checked and turned into a Call. Each function fills `call` and touches
// nothing else; an error names parameter, value and range. Checks on the success path are a few compares
// without calls.

#include "handles.hpp"

namespace tamaki::c {

/// What most operations have in common. `count` in elements of `type`.
struct Vector {
  const void* send;
  void* recv;
  std::size_t count;
  tmkDataType_t type;
};
/// One side of an uneven operation: counts[p] and, or null for packed, displs[p], in elements.
struct Uneven {
  const std::size_t* counts;
  const std::size_t* displs;
};

Status fill_allreduce(const tmkComm& comm, const Vector& v, tmkOp_t op, Call* call);
Status fill_reduce(const tmkComm& comm, const Vector& v, tmkOp_t op, int root, Call* call);
Status fill_broadcast(const tmkComm& comm, const Vector& v, int root, Call* call);
Status fill_allgather(const tmkComm& comm, const Vector& v, Call* call);
/// v.count is not read.
Status fill_allgatherv(const tmkComm& comm, const Vector& v, const Uneven& recv, Call* call);
Status fill_reduce_scatter(const tmkComm& comm, const Vector& v, tmkOp_t op, Call* call);
/// v.count is not read.
Status fill_reduce_scatterv(const tmkComm& comm, const Vector& v, const std::size_t* counts, tmkOp_t op,
                            Call* call);
Status fill_gather(const tmkComm& comm, const Vector& v, int root, Call* call);
Status fill_gatherv(const tmkComm& comm, const Vector& v, const Uneven& recv, int root, Call* call);
Status fill_scatter(const tmkComm& comm, const Vector& v, int root, Call* call);
Status fill_scatterv(const tmkComm& comm, const Vector& v, const Uneven& send, int root, Call* call);
Status fill_alltoall(const tmkComm& comm, const Vector& v, Call* call);
/// v.count is not read.
Status fill_alltoallv(const tmkComm& comm, const Vector& v, const Uneven& send, const Uneven& recv,
                      Call* call);
Status fill_barrier(Call* call);

struct Message {
  std::size_t count;
  int peer;
};
Status fill_send(const tmkComm& comm, const void* send, const Message& to, tmkDataType_t type, Call* call);
Status fill_recv(const tmkComm& comm, void* recv, const Message& from, tmkDataType_t type, Call* call);
Status fill_sendrecv(const tmkComm& comm, const void* send, const Message& to, void* recv,
                     const Message& from, tmkDataType_t type, Call* call);

/// A data type given by a caller, which may be any number.
Status check_type(tmkDataType_t type);

}  // namespace tamaki::c
