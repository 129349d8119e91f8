// The operations: fill a Call from the arguments (arguments.cpp), then run it, start it, or give it to the
// open group.
#include "arguments.hpp"
#include "groups.hpp"
#include "guard.hpp"

namespace tamaki::c {
namespace {

template <class Fill>
tmkResult_t blocking(const char* function, tmkComm* comm, Fill&& fill) noexcept {
  return guard_call(function, comm, [&](tmkComm& c) -> Status {
    Call call;
    TMK_TRY(fill(c, &call));
    if (t_group_depth != 0) [[unlikely]]
      return record_in_group(c, call, nullptr);
    return c.impl->run(call);
  });
}

struct FreeRequest {
  void operator()(tmkRequest* request) const { free_request(*request); }
};

template <class Fill>
tmkResult_t nonblocking(const char* function, tmkComm* comm, tmkRequest_t* request, Fill&& fill) noexcept {
  return guard_call(function, comm, [&](tmkComm& c) -> Status {
    if (request == nullptr) return null_argument("request");
    *request = nullptr;
    Call call;
    TMK_TRY(fill(c, &call));
    std::unique_ptr<tmkRequest, FreeRequest> handle(take_request(c));
    if (t_group_depth != 0) {
      TMK_TRY(record_in_group(c, call, handle.get()));
    } else {
      Result<Request*> started = c.impl->start(call);
      if (!started) return pass(std::move(started));
      handle->inner = *started;
      handle->state.store(tmkRequest::kActive, std::memory_order_release);
    }
    *request = handle.release();
    return {};
  });
}

}  // namespace
}  // namespace tamaki::c

using namespace tamaki;
using namespace tamaki::c;

// Each pair below differs in how the call is launched only; FILL is what makes the Call of `c`.
#define FILL(expression) [&](const tmkComm& c, Call* call) -> Status { return expression; }

tmkResult_t tmkAllreduce(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op,
                         tmkComm_t comm) {
  return blocking("tmkAllreduce", comm, FILL(fill_allreduce(c, {send, recv, count, type}, op, call)));
}
tmkResult_t tmkIallreduce(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op,
                          tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIallreduce", comm, request,
                     FILL(fill_allreduce(c, {send, recv, count, type}, op, call)));
}

tmkResult_t tmkReduce(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op, int root,
                      tmkComm_t comm) {
  return blocking("tmkReduce", comm, FILL(fill_reduce(c, {send, recv, count, type}, op, root, call)));
}
tmkResult_t tmkIreduce(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op, int root,
                       tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIreduce", comm, request,
                     FILL(fill_reduce(c, {send, recv, count, type}, op, root, call)));
}

tmkResult_t tmkBroadcast(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                         tmkComm_t comm) {
  return blocking("tmkBroadcast", comm, FILL(fill_broadcast(c, {send, recv, count, type}, root, call)));
}
tmkResult_t tmkIbroadcast(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                          tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIbroadcast", comm, request,
                     FILL(fill_broadcast(c, {send, recv, count, type}, root, call)));
}

tmkResult_t tmkAllgather(const void* send, void* recv, size_t count, tmkDataType_t type, tmkComm_t comm) {
  return blocking("tmkAllgather", comm, FILL(fill_allgather(c, {send, recv, count, type}, call)));
}
tmkResult_t tmkIallgather(const void* send, void* recv, size_t count, tmkDataType_t type, tmkComm_t comm,
                          tmkRequest_t* request) {
  return nonblocking("tmkIallgather", comm, request,
                     FILL(fill_allgather(c, {send, recv, count, type}, call)));
}

tmkResult_t tmkAllgatherv(const void* send, void* recv, const size_t* counts, const size_t* displs,
                          tmkDataType_t type, tmkComm_t comm) {
  return blocking("tmkAllgatherv", comm,
                  FILL(fill_allgatherv(c, {send, recv, 0, type}, {counts, displs}, call)));
}
tmkResult_t tmkIallgatherv(const void* send, void* recv, const size_t* counts, const size_t* displs,
                           tmkDataType_t type, tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIallgatherv", comm, request,
                     FILL(fill_allgatherv(c, {send, recv, 0, type}, {counts, displs}, call)));
}

tmkResult_t tmkReduceScatter(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op,
                             tmkComm_t comm) {
  return blocking("tmkReduceScatter", comm,
                  FILL(fill_reduce_scatter(c, {send, recv, count, type}, op, call)));
}
tmkResult_t tmkIreduceScatter(const void* send, void* recv, size_t count, tmkDataType_t type, tmkOp_t op,
                              tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIreduceScatter", comm, request,
                     FILL(fill_reduce_scatter(c, {send, recv, count, type}, op, call)));
}

tmkResult_t tmkReduceScatterv(const void* send, void* recv, const size_t* counts, tmkDataType_t type,
                              tmkOp_t op, tmkComm_t comm) {
  return blocking("tmkReduceScatterv", comm,
                  FILL(fill_reduce_scatterv(c, {send, recv, 0, type}, counts, op, call)));
}
tmkResult_t tmkIreduceScatterv(const void* send, void* recv, const size_t* counts, tmkDataType_t type,
                               tmkOp_t op, tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIreduceScatterv", comm, request,
                     FILL(fill_reduce_scatterv(c, {send, recv, 0, type}, counts, op, call)));
}

tmkResult_t tmkGather(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                      tmkComm_t comm) {
  return blocking("tmkGather", comm, FILL(fill_gather(c, {send, recv, count, type}, root, call)));
}
tmkResult_t tmkIgather(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                       tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIgather", comm, request,
                     FILL(fill_gather(c, {send, recv, count, type}, root, call)));
}

tmkResult_t tmkGatherv(const void* send, size_t count, void* recv, const size_t* counts,
                       const size_t* displs, tmkDataType_t type, int root, tmkComm_t comm) {
  return blocking("tmkGatherv", comm,
                  FILL(fill_gatherv(c, {send, recv, count, type}, {counts, displs}, root, call)));
}
tmkResult_t tmkIgatherv(const void* send, size_t count, void* recv, const size_t* counts,
                        const size_t* displs, tmkDataType_t type, int root, tmkComm_t comm,
                        tmkRequest_t* request) {
  return nonblocking("tmkIgatherv", comm, request,
                     FILL(fill_gatherv(c, {send, recv, count, type}, {counts, displs}, root, call)));
}

tmkResult_t tmkScatter(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                       tmkComm_t comm) {
  return blocking("tmkScatter", comm, FILL(fill_scatter(c, {send, recv, count, type}, root, call)));
}
tmkResult_t tmkIscatter(const void* send, void* recv, size_t count, tmkDataType_t type, int root,
                        tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIscatter", comm, request,
                     FILL(fill_scatter(c, {send, recv, count, type}, root, call)));
}

tmkResult_t tmkScatterv(const void* send, const size_t* counts, const size_t* displs, void* recv,
                        size_t count, tmkDataType_t type, int root, tmkComm_t comm) {
  return blocking("tmkScatterv", comm,
                  FILL(fill_scatterv(c, {send, recv, count, type}, {counts, displs}, root, call)));
}
tmkResult_t tmkIscatterv(const void* send, const size_t* counts, const size_t* displs, void* recv,
                         size_t count, tmkDataType_t type, int root, tmkComm_t comm,
                         tmkRequest_t* request) {
  return nonblocking("tmkIscatterv", comm, request,
                     FILL(fill_scatterv(c, {send, recv, count, type}, {counts, displs}, root, call)));
}

tmkResult_t tmkAlltoall(const void* send, void* recv, size_t count, tmkDataType_t type, tmkComm_t comm) {
  return blocking("tmkAlltoall", comm, FILL(fill_alltoall(c, {send, recv, count, type}, call)));
}
tmkResult_t tmkIalltoall(const void* send, void* recv, size_t count, tmkDataType_t type, tmkComm_t comm,
                         tmkRequest_t* request) {
  return nonblocking("tmkIalltoall", comm, request,
                     FILL(fill_alltoall(c, {send, recv, count, type}, call)));
}

tmkResult_t tmkAlltoallv(const void* send, const size_t* send_counts, const size_t* send_displs, void* recv,
                         const size_t* recv_counts, const size_t* recv_displs, tmkDataType_t type,
                         tmkComm_t comm) {
  return blocking("tmkAlltoallv", comm,
                  FILL(fill_alltoallv(c, {send, recv, 0, type}, {send_counts, send_displs},
                                      {recv_counts, recv_displs}, call)));
}
tmkResult_t tmkIalltoallv(const void* send, const size_t* send_counts, const size_t* send_displs,
                          void* recv, const size_t* recv_counts, const size_t* recv_displs,
                          tmkDataType_t type, tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIalltoallv", comm, request,
                     FILL(fill_alltoallv(c, {send, recv, 0, type}, {send_counts, send_displs},
                                         {recv_counts, recv_displs}, call)));
}

#undef FILL

tmkResult_t tmkBarrier(tmkComm_t comm) {
  return blocking("tmkBarrier", comm, [](const tmkComm&, Call* call) { return fill_barrier(call); });
}
tmkResult_t tmkIbarrier(tmkComm_t comm, tmkRequest_t* request) {
  return nonblocking("tmkIbarrier", comm, request,
                     [](const tmkComm&, Call* call) { return fill_barrier(call); });
}

tmkResult_t tmkSend(const void* send, size_t count, tmkDataType_t type, int peer, tmkComm_t comm) {
  return blocking("tmkSend", comm, [&](const tmkComm& c, Call* call) {
    return fill_send(c, send, {.count = count, .peer = peer}, type, call);
  });
}
tmkResult_t tmkIsend(const void* send, size_t count, tmkDataType_t type, int peer, tmkComm_t comm,
                     tmkRequest_t* request) {
  return nonblocking("tmkIsend", comm, request, [&](const tmkComm& c, Call* call) {
    return fill_send(c, send, {.count = count, .peer = peer}, type, call);
  });
}

tmkResult_t tmkRecv(void* recv, size_t count, tmkDataType_t type, int peer, tmkComm_t comm) {
  return blocking("tmkRecv", comm, [&](const tmkComm& c, Call* call) {
    return fill_recv(c, recv, {.count = count, .peer = peer}, type, call);
  });
}
tmkResult_t tmkIrecv(void* recv, size_t count, tmkDataType_t type, int peer, tmkComm_t comm,
                     tmkRequest_t* request) {
  return nonblocking("tmkIrecv", comm, request, [&](const tmkComm& c, Call* call) {
    return fill_recv(c, recv, {.count = count, .peer = peer}, type, call);
  });
}

tmkResult_t tmkSendrecv(const void* send, size_t send_count, int dest, void* recv, size_t recv_count,
                        int source, tmkDataType_t type, tmkComm_t comm) {
  return blocking("tmkSendrecv", comm, [&](const tmkComm& c, Call* call) {
    return fill_sendrecv(c, send, {.count = send_count, .peer = dest}, recv,
                         {.count = recv_count, .peer = source}, type, call);
  });
}
