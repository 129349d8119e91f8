#pragma once
// Ranks as processes that talk through the C interface and leave what became of them on a board that the
// test reads.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tamaki/tamaki.h"

namespace tamaki::failure_test {

using Clock = std::chrono::steady_clock;
constexpr int kMaxRanks = 16;

inline double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// Memory that the test and its ranks share.
struct Board {
  std::atomic<int> id_ready{0};
  tmkUniqueId id;
  struct Rank {
    std::atomic<int> calls{0};     // completed
    std::atomic<int> finished{0};  // 1: `result`, `at` and `text` are there
    int result = 0;
    double at = 0;  // seconds since `began` of the error
    char text[512] = {};
  } ranks[kMaxRanks];
  std::atomic<int> stage{0};    // for the test's own use
  std::atomic<double> left{0};  // when somebody left, as seconds since `began`
  Clock::time_point began;
};

class Job {
 public:
  /// Forks `ranks` processes that run `body(comm, rank, board)` and leave what it returns on the board.
  Job(int ranks, const tmkConfig_t& config, std::function<tmkResult_t(tmkComm_t, int, Board*)> body)
      : ranks_(ranks) {
    board_ = new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
        Board;
    board_->began = Clock::now();
    for (int r = 0; r < ranks; ++r) {
      const pid_t pid = ::fork();
      if (pid != 0) {
        pids_.push_back(pid);
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (r == 0) {
        if (tmkGetUniqueId(&board_->id) != tmkSuccess) ::_exit(3);
        board_->id_ready.store(1);
      }
      while (board_->id_ready.load() == 0) ::usleep(1000);
      tmkComm_t comm = nullptr;
      tmkResult_t result = tmkCommInitRank(&comm, ranks, board_->id, r, &config);
      const char* text = tmkGetLastError(nullptr);
      if (result == tmkSuccess) {
        result = body(comm, r, board_);
        text = tmkGetLastError(comm);
      }
      Board::Rank& mine = board_->ranks[r];
      mine.result = result;
      mine.at = seconds_since(board_->began);
      std::strncpy(mine.text, text, sizeof mine.text - 1);
      mine.finished.store(1);
      if (comm != nullptr) tmkCommDestroy(comm);
      ::_exit(0);
    }
  }
  ~Job() {
    for (pid_t pid : pids_) {
      ::kill(pid, SIGCONT);
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(board_, sizeof(Board));
  }

  void signal(int rank, int number) { ::kill(pids_[static_cast<std::size_t>(rank)], number); }
  Board::Rank& rank(int r) { return board_->ranks[r]; }
  Board& board() { return *board_; }
  double now() const { return seconds_since(board_->began); }
  bool wait_calls(int calls) {
    for (int r = 0; r < ranks_; ++r)
      for (int i = 0; board_->ranks[r].calls.load() < calls; ++i) {
        if (i > 20000 || board_->ranks[r].finished.load() != 0) return false;
        ::usleep(1000);
      }
    return true;
  }
  bool wait_finished(int rank, double limit) {
    for (const auto start = Clock::now(); board_->ranks[rank].finished.load() == 0; ::usleep(1000))
      if (seconds_since(start) > limit) return false;
    return true;
  }
  int ranks() const { return ranks_; }

 private:
  int ranks_;
  Board* board_;
  std::vector<pid_t> pids_;
};

inline tmkConfig_t config_of(const char* transports, int timeout_ms) {
  tmkConfig_t config = TMK_CONFIG_INIT;
  config.transports = transports;
  config.timeout_ms = timeout_ms;
  return config;
}

}  // namespace tamaki::failure_test
