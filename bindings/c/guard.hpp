#pragma once
// The one way from the C interface into the library: no exception passes, every failure leaves its text.

#include <concepts>

#include "handles.hpp"

namespace tamaki::c {

/// Depth of open groups of the calling thread (tmkGroupStart). Mirrors Group::current() for the price of
/// one load. initial-exec: a group check must not cost a call; the 4 bytes fit the room that libc keeps for
/// loaded libraries.
extern thread_local int t_group_depth __attribute__((tls_model("initial-exec")));

/// Records the text "<function>[ "<communicator>"]: <error>" for the thread and, if `comm` is not null, for
/// the communicator. Returns the error's code.
tmkResult_t report(const char* function, tmkComm* comm, const Error& error) noexcept;
/// The same for `comm` that is null, was destroyed or never was a communicator.
tmkResult_t report_handle(const char* function, tmkComm* comm) noexcept;
/// The same for what a catch block has caught.
tmkResult_t report_exception(const char* function, tmkComm* comm) noexcept;
/// Makes the open group of this thread, if there is one, launch nothing: a call of it failed with `result`.
void fail_open_group(tmkResult_t result) noexcept;

/// Runs body() -> Status.
template <std::invocable Body>
tmkResult_t guard(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    if (status) [[likely]]
      return tmkSuccess;
    return report(function, nullptr, status.error());
  } catch (...) {
    return report_exception(function, nullptr);
  }
}

/// Runs body(tmkComm&) -> Status on a live communicator.
template <std::invocable<tmkComm&> Body>
tmkResult_t guard(const char* function, tmkComm* comm, Body&& body) noexcept {
  if (!alive(comm)) [[unlikely]]
    return report_handle(function, comm);
  try {
    const Status status = body(*comm);
    if (status) [[likely]]
      return tmkSuccess;
    return report(function, comm, status.error());
  } catch (...) {
    return report_exception(function, comm);
  }
}

/// As guard(), for calls that a group collects.
template <std::invocable<tmkComm&> Body>
tmkResult_t guard_call(const char* function, tmkComm* comm, Body&& body) noexcept {
  const tmkResult_t result = guard(function, comm, static_cast<Body&&>(body));
  if (result != tmkSuccess) [[unlikely]]
    fail_open_group(result);
  return result;
}

/// Text of the last failure of the calling thread, or of `comm`, valid until the thread's next failure.
const char* last_error(tmkComm* comm) noexcept;

/// invalid_usage for functions that have no meaning inside a group.
Status refuse_in_group();
/// "<name> is NULL".
tl::unexpected<Error> null_argument(const char* name);

}  // namespace tamaki::c

/// Returns the failure of `expression`, a Status, to the caller.
#define TMK_TRY(expression)                                                                           \
  do {                                                                                                \
    if (::tamaki::Status status_ = (expression); !status_) return ::tamaki::pass(std::move(status_)); \
  } while (false)
