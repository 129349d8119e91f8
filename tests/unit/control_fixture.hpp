#pragma once
// What the tests of the control plane share: ranks as threads and as processes, what a listener heard.

#include "communicator/control.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "base/secret.hpp"
#include "base/socket.hpp"
#include "communicator/bootstrap/join.hpp"

namespace tamaki::control_test {

using namespace std::chrono_literals;

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#elif __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr long kSanitizerFactor = 20;  // their own records of what was freed
constexpr int kSlow = 4;
#else
constexpr long kSanitizerFactor = 1;
constexpr int kSlow = 1;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif
#define NEEDS_FORK() \
  if (!kForks) GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked process"

template <class Function>
void on_ranks(int ranks, Function function) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([=] { function(r); });
  for (std::thread& t : threads) t.join();
}

inline int count_in(const char* folder) {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}
inline long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}
inline int descriptors() { return count_in("/proc/self/fd"); }
inline int threads_now() { return count_in("/proc/self/task"); }

inline void check_exchange(Control& control, int ranks, std::size_t bytes, int salt) {
  const int rank = control.rank();
  const auto value = [&](int r, std::size_t i) { return static_cast<std::byte>(r * 7 + salt * 13 + static_cast<int>(i)); };
  std::vector<std::byte> mine(bytes), all(bytes * static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = value(rank, i);
  const Status status = control.allgather(mine, all);
  ASSERT_TRUE(status) << status.error().message;
  std::vector<std::byte> expected;
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < bytes; ++i) expected.push_back(value(r, i));
  ASSERT_TRUE(all == expected) << ranks << " ranks, " << bytes << " bytes";
}

/// What a listener heard.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<std::uint64_t, Failure>> all;
  void add(std::uint64_t communicator, const Failure& f) {
    const std::lock_guard lock(mutex);
    all.emplace_back(communicator, f);
    changed.notify_all();
  }
  bool wait(std::size_t n, std::chrono::milliseconds most = 10000ms) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, most, [&] { return all.size() >= n; });
  }
};

/// Ranks as processes. Each child runs `body(rank)` and reports one line; killed ones report nothing.
struct Processes {
  std::vector<pid_t> pids;
  std::vector<FileDescriptor> reports;

  template <class Body>
  Processes(int ranks, Body body) {
    int gate[2];  // all begin together: forking takes its time on a busy machine
    EXPECT_EQ(::pipe(gate), 0);
    for (int r = 0; r < ranks; ++r) {
      int pipe_fds[2];
      EXPECT_EQ(::pipe(pipe_fds), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(pipe_fds[0]);
        ::close(gate[1]);
        for (const FileDescriptor& report : reports) ::close(report.get());
        char end;
        [[maybe_unused]] const auto opened = ::read(gate[0], &end, 1);
        const std::string line = body(r) + "\n";
        [[maybe_unused]] const auto written = ::write(pipe_fds[1], line.data(), line.size());
        ::_exit(0);
      }
      ::close(pipe_fds[1]);
      pids.push_back(pid);
      reports.emplace_back(pipe_fds[0]);
    }
    ::close(gate[0]);
    ::close(gate[1]);
  }
  void kill(int rank) { ::kill(pids[static_cast<std::size_t>(rank)], SIGKILL); }
  /// What rank wrote, at the latest after 60 s; then it is ended for good.
  std::string report(int rank) {
    std::string text;
    char buffer[512];
    const int fd = reports[static_cast<std::size_t>(rank)].get();
    while (text.find('\n') == std::string::npos) {
      pollfd entry{fd, POLLIN, 0};
      if (::poll(&entry, 1, 60000) <= 0) return "HANGS: " + text;
      const auto n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }
  ~Processes() {
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  }
};

}  // namespace tamaki::control_test
