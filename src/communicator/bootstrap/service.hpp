#pragma once
// The library's own threads.

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <system_error>
#include <thread>

#include "base/result.hpp"

namespace tamaki::bootstrap {

/// A joinable thread that the library owns: named, with all signals blocked (they belong to the host program), joined
/// by its owner. After a fork the child has no such thread: join() then forgets it instead of waiting for ever.
class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread() { join(); }

  /// `name`: at most 15 characters.
  Status start(const char* name, std::function<void()> function) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    try {
      thread_ = std::thread(std::move(function));
      ::pthread_setname_np(thread_.native_handle(), name);
    } catch (const std::system_error& e) {
      status = fail(Code::out_of_memory, std::string("cannot start thread ") + name + ": " + e.what());
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pid_ = ::getpid();
    return status;
  }
  bool in_owner_process() const { return pid_ == ::getpid(); }
  void join() {
    if (!thread_.joinable()) return;
    if (in_owner_process())
      thread_.join();
    else
      new std::thread(std::move(thread_));  // leaked on purpose: its destructor would end the process
  }

 private:
  std::thread thread_;
  pid_t pid_ = 0;
};

}  // namespace tamaki::bootstrap
