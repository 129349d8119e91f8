#include "groups.hpp"

#include <algorithm>
#include <new>
#include <vector>

namespace tamaki::c {
namespace {

/// Of the open group of this thread: where results and texts are due at its end.
struct Seen {
  std::vector<tmkComm*> comms;
  std::vector<tmkRequest*> requests;
};
Seen& seen() {
  thread_local Seen instance;
  return instance;
}

/// Requests of a launched group are active; those of one that was not launched say why.
void settle(const std::vector<tmkRequest*>& requests, const Status& status) {
  for (tmkRequest* request : requests) {
    if (request->inner != nullptr) {
      request->state.store(tmkRequest::kActive, std::memory_order_release);
    } else {
      request->failure = status
                             ? Error{Code::internal, Scope::request, "its group ended without starting it"}
                             : Error{status.error().code, Scope::request,
                                     "its group was not launched: " + status.error().message};
      request->state.store(tmkRequest::kFailed, std::memory_order_release);
    }
  }
}

Status end_group() {
  if (t_group_depth == 0) return fail(Code::invalid_usage, "no group is open on this thread");
  Status status;
  try {
    status = Group::current().end();
  } catch (const std::bad_alloc&) {
    status = fail(Code::out_of_memory, "out of memory");
  }
  if (--t_group_depth > 0) return status;
  Seen ended = std::move(seen());
  seen() = {};
  settle(ended.requests, status);
  if (!status)
    for (tmkComm* comm : ended.comms) report("tmkGroupEnd", comm, status.error());
  return status;
}

}  // namespace

Status record_in_group(tmkComm& comm, const Call& call, tmkRequest* request) {
  Seen& group = seen();
  if (std::find(group.comms.begin(), group.comms.end(), &comm) == group.comms.end())
    group.comms.push_back(&comm);
  if (request == nullptr) return Group::current().add(comm.impl.get(), call, nullptr);
  group.requests.push_back(request);
  Status status;
  try {
    status = Group::current().add(comm.impl.get(), call, &request->inner);
  } catch (...) {
    group.requests.pop_back();
    throw;
  }
  if (!status) group.requests.pop_back();
  return status;
}

}  // namespace tamaki::c

using namespace tamaki;
using namespace tamaki::c;

tmkResult_t tmkGroupStart(void) {
  return guard("tmkGroupStart", []() -> Status {
    Group::current().start();
    ++t_group_depth;
    return {};
  });
}

tmkResult_t tmkGroupEnd(void) { return guard("tmkGroupEnd", end_group); }
