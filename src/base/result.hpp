#pragma once
// The one error type. The first function that knows the cause words the error; the others pass it on.

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tamaki {

/// Values equal those of tmkResult_t, so that the C edge converts by a cast.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,
  invalid_usage = 2,
  system = 3,
  out_of_memory = 4,
  peer_lost = 5,
  timeout = 6,
  mismatch = 7,
  aborted = 8,
  in_progress = 9,
  internal = 10,
};

/// What an error leaves unusable: a request leaves everything else as it was.
enum class Scope : int { request, connection, communicator, process };

struct Error {
  Code code = Code::internal;
  Scope scope = Scope::request;
  std::string message;  // names, numbers, range and place; no trailing full stop
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Code code, std::string message, Scope scope = Scope::request) {
  return tl::unexpected<Error>(Error{code, scope, std::move(message)});
}

/// fail(Code::system, "<what>: <strerror(errno)> (errno N)").
[[nodiscard]] tl::unexpected<Error> fail_errno(const std::string& what, Scope scope = Scope::request);

/// Passes an error of another Result on.
template <class T>
[[nodiscard]] tl::unexpected<Error> pass(tl::expected<T, Error>&& failed) {
  return tl::unexpected<Error>(std::move(failed.error()));
}

}  // namespace tamaki
