// Completion of non-blocking operations.
#include <array>
#include <span>
#include <vector>

#include "guard.hpp"

namespace tamaki::c {
namespace {

/// invalid_argument or invalid_usage unless the request can be waited for.
Status check_waitable(const tmkRequest& request) {
  switch (request.state.load(std::memory_order_acquire)) {
    case tmkRequest::kActive:
    case tmkRequest::kFailed:
      return {};
    case tmkRequest::kRecorded:
      return fail(Code::invalid_usage, "the request's group is still open: call tmkGroupEnd first");
    default: {
      char text[96];
      std::snprintf(text, sizeof text, "*request=%p is not a request, or has completed already",
                    static_cast<const void*>(&request));
      return fail(Code::invalid_argument, text);
    }
  }
}

/// Takes the outcome of a completed request and frees it; *handle = NULL.
Status collect(tmkRequest_t* handle) {
  tmkRequest& request = **handle;
  *handle = nullptr;
  Status outcome;
  if (request.state.load(std::memory_order_relaxed) == tmkRequest::kFailed)
    outcome = tl::unexpected<Error>(request.failure);
  else
    outcome = request.inner->result;
  free_request(request);
  return outcome;
}

Status wait_one(tmkRequest_t* handle) {
  tmkRequest& request = **handle;
  TMK_TRY(check_waitable(request));
  Status waited;
  if (request.state.load(std::memory_order_relaxed) == tmkRequest::kActive)
    waited = request.comm->impl->wait(request.inner);
  Status outcome = collect(handle);
  return waited ? outcome : waited;
}

/// Runs body(tmkRequest&) -> Status for *request, which is not NULL; the text of a failure goes to its
/// communicator.
template <class Body>
tmkResult_t guard_request(const char* function, tmkRequest_t request, Body&& body) noexcept {
  tmkComm* comm = nullptr;
  try {
    Status status = check_waitable(*request);
    if (status) {
      comm = request->comm;
      status = body(*request);
    }
    return status ? tmkSuccess : report(function, comm, status.error());
  } catch (...) {
    return report_exception(function, comm);
  }
}

/// Small arrays of requests without allocation.
class InnerRequests {
 public:
  explicit InnerRequests(std::size_t count) {
    if (count > few_.size()) many_.resize(count);
    view_ = count > few_.size() ? std::span<Request*>(many_) : std::span<Request*>(few_).first(count);
  }
  std::span<Request*> view() { return view_; }

 private:
  std::array<Request*, 32> few_{};
  std::vector<Request*> many_;
  std::span<Request*> view_;
};

Status check_array(int count, const tmkRequest_t* requests) {
  if (count < 0) return fail(Code::invalid_argument, "count=" + std::to_string(count) + " is negative");
  if (requests == nullptr && count > 0) return null_argument("requests");
  for (int i = 0; i < count; ++i)
    if (requests[i] != nullptr)
      if (Status status = check_waitable(*requests[i]); !status)
        return fail(status.error().code, "requests[" + std::to_string(i) + "]: " + status.error().message);
  return {};
}

/// Index of a request that has completed, without taking its outcome; -1: all are NULL.
Result<int> any_completed(std::span<const tmkRequest_t> requests) {
  InnerRequests inner(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const tmkRequest* request = requests[i];
    if (request != nullptr && request->state.load(std::memory_order_relaxed) == tmkRequest::kFailed)
      return static_cast<int>(i);
    inner.view()[i] = request == nullptr ? nullptr : request->inner;
  }
  return Communicator::wait_any(inner.view());
}

bool one_communicator(std::span<const tmkRequest_t> requests) {
  const tmkComm* comm = nullptr;
  for (const tmkRequest* request : requests) {
    if (request == nullptr) continue;
    if (comm != nullptr && comm != request->comm) return false;
    comm = request->comm;
  }
  return true;
}

/// Waits for all; the first failure is the result, and every handle is freed.
tmkResult_t wait_all(const char* function, std::span<tmkRequest_t> requests) {
  tmkResult_t first = tmkSuccess;
  const auto finish = [&](tmkRequest_t& request) {
    tmkComm* comm = request->comm;
    if (const Status status = wait_one(&request); !status) {
      const tmkResult_t result = report(function, comm, status.error());
      if (first == tmkSuccess) first = result;
    }
  };
  if (!one_communicator(requests)) {
    // Waiting for one after the other would leave the other communicators without progress, and ranks that
    // wait in another order for each other: whatever completes first is taken first.
    while (true) {
      const Result<int> index = any_completed(requests);
      if (!index || *index < 0) break;  // on failure the loop below finds each request's own
      finish(requests[static_cast<std::size_t>(*index)]);
    }
  }
  for (tmkRequest_t& request : requests)
    if (request != nullptr) finish(request);
  return first;
}

}  // namespace
}  // namespace tamaki::c

using namespace tamaki;
using namespace tamaki::c;

tmkResult_t tmkTest(tmkRequest_t* request, int* done) {
  if (request == nullptr || done == nullptr)
    return guard("tmkTest",
                 [&]() -> Status { return null_argument(request == nullptr ? "request" : "done"); });
  *done = 1;
  if (*request == nullptr) return tmkSuccess;
  return guard_request("tmkTest", *request, [&](tmkRequest& r) -> Status {
    if (r.state.load(std::memory_order_relaxed) == tmkRequest::kFailed) return collect(request);
    Status status = r.comm->impl->test(r.inner);
    if (r.inner->done) return collect(request);
    *done = 0;
    return status;
  });
}

tmkResult_t tmkWait(tmkRequest_t* request) {
  if (request == nullptr) return guard("tmkWait", []() -> Status { return null_argument("request"); });
  if (*request == nullptr) return tmkSuccess;
  return guard_request("tmkWait", *request, [&](tmkRequest&) { return wait_one(request); });
}

tmkResult_t tmkWaitAny(int count, tmkRequest_t* requests, int* index) {
  tmkComm* comm = nullptr;
  try {
    const Status status = [&]() -> Status {
      if (index == nullptr) return null_argument("index");
      *index = -1;
      TMK_TRY(check_array(count, requests));
      const std::span<tmkRequest_t> all(requests, static_cast<std::size_t>(count));
      const Result<int> which = any_completed(all);
      if (!which) return tl::unexpected<Error>(which.error());
      *index = *which;
      if (*which < 0) return {};
      comm = all[static_cast<std::size_t>(*which)]->comm;
      return collect(&all[static_cast<std::size_t>(*which)]);
    }();
    return status ? tmkSuccess : report("tmkWaitAny", comm, status.error());
  } catch (...) {
    return report_exception("tmkWaitAny", comm);
  }
}

tmkResult_t tmkWaitAll(int count, tmkRequest_t* requests) {
  tmkResult_t outcome = tmkSuccess;
  const tmkResult_t checked = guard("tmkWaitAll", [&]() -> Status {
    TMK_TRY(check_array(count, requests));
    outcome = wait_all("tmkWaitAll", {requests, static_cast<std::size_t>(count)});
    return {};
  });
  return checked != tmkSuccess ? checked : outcome;
}
