#pragma once
// Ranks as threads: runs a body once per rank, each with a communicator of its own, over any transport that
// joins threads of one process. The control plane is a barrier and shared memory; a watchdog turns a hang
// into a failure.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "communicator/communicator.hpp"

namespace tamaki::test {

/// What the fake control planes of one job share.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), listeners_(static_cast<std::size_t>(ranks)) {}
  int ranks() const { return ranks_; }

  void allgather(int rank, std::span<const std::byte> mine, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    if (board_.size() != all.size()) board_.resize(all.size());
    std::memcpy(board_.data() + static_cast<std::size_t>(rank) * mine.size(), mine.data(), mine.size());
    meet(lock);
    std::memcpy(all.data(), board_.data(), all.size());
    meet(lock);
  }
  void announce(int rank, std::uint64_t communicator, const Failure& failure) {
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank) continue;
      const std::lock_guard lock(listener_mutex_);
      if (auto& listener = listeners_[static_cast<std::size_t>(r)]) listener(communicator, failure);
    }
  }
  void leave(int rank, std::uint64_t communicator) {
    const std::lock_guard lock(listener_mutex_);
    left_.emplace(communicator, rank);
  }
  Presence presence(std::uint64_t communicator, int rank) {
    const std::lock_guard lock(listener_mutex_);
    return left_.contains({communicator, rank}) ? Presence::left_communicator : Presence::here;
  }
  void listen(int rank, std::function<void(std::uint64_t, const Failure&)> listener) {
    const std::lock_guard lock(listener_mutex_);
    listeners_[static_cast<std::size_t>(rank)] = std::move(listener);
  }

 private:
  void meet(std::unique_lock<std::mutex>& lock) {
    const long round = round_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }
  int ranks_;
  std::mutex mutex_, listener_mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  long round_ = 0;
  std::vector<std::byte> board_;
  std::vector<std::function<void(std::uint64_t, const Failure&)>> listeners_;
  std::set<std::pair<std::uint64_t, int>> left_;
};

class MeetingControl final : public Control {
 public:
  MeetingControl(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return meeting_->ranks(); }
  std::span<const std::byte> secret() const override { return secret_; }
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    meeting_->allgather(rank_, mine, all);
    return {};
  }
  void announce(std::uint64_t communicator, const Failure& failure) override {
    meeting_->announce(rank_, communicator, failure);
  }
  void leave(std::uint64_t communicator) override { meeting_->leave(rank_, communicator); }
  Presence presence(std::uint64_t communicator, int rank) const override {
    return meeting_->presence(communicator, rank);
  }
  void listen(std::function<void(std::uint64_t, const Failure&)> listener) override {
    meeting_->listen(rank_, std::move(listener));
  }
  std::string describe(int rank) const override { return "rank " + std::to_string(rank); }
  void set_identities(std::span<const RankIdentity>) override {}

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  std::byte secret_[32] = {std::byte{42}};
};

/// Runs `body(communicator)` on `ranks` threads. `transports`: e.g. "inproc" or "tcp". Deadline of every
/// operation: `config.timeout_ms`.
inline void run_ranks(int ranks, const CommunicatorConfig& config,
                      const std::function<void(Communicator&)>& body) {
  auto meeting = std::make_shared<Meeting>(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto communicator = Communicator::create(std::make_shared<MeetingControl>(meeting, r), config);
      if (!communicator) {
        ADD_FAILURE() << "rank " << r << ": " << communicator.error().message;
        return;
      }
      body(**communicator);
    });
  for (auto& thread : threads) thread.join();
}

inline CommunicatorConfig config_for(std::string transports, std::string algorithm = {}) {
  CommunicatorConfig config;
  config.timeout_ms = 20000;
  config.transports = std::move(transports);
  config.algorithm = std::move(algorithm);
  return config;
}

}  // namespace tamaki::test
