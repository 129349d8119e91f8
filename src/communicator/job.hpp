#pragma once
// A job: the control plane and the communicators that live on it. Failures that the control plane reports are handed
// to the communicators they concern.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "communicator/control.hpp"
#include "select/tuning.hpp"
#include "topology/placement/placement.hpp"

namespace tamaki {

class Job {
 public:
  using Listener = std::function<void(const Failure&)>;

  explicit Job(std::shared_ptr<Control> control);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Control& control() { return *control_; }

  /// The machine that the user has described, or what the ranks have found, with the places of all ranks of the job on it,
  /// and the tuning table. Null: not laid out yet.
  struct Ground {
    Machine machine;
    Placement placement;
    bool described = false;
    std::uint64_t machine_hash = 0;  // hash_of(machine)
    TuningTable tuning;
  };
  std::shared_ptr<const Ground> ground() {
    const std::lock_guard lock(mutex_);
    return ground_;
  }
  void set_ground(std::shared_ptr<const Ground> ground) {
    const std::lock_guard lock(mutex_);
    ground_ = std::move(ground);
  }
  /// One for all communicators whose ranks are at the same places: what one has simulated serves the others. `make` is
  /// called where there is none yet.
  template <class Make>
  std::shared_ptr<Costs> costs(std::uint64_t key, const Make& make) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Costs>& found = costs_[key];
    if (found == nullptr) found = make();
    return found;
  }

  /// `listener` hears of failures of communicator `id` and of losses of its members (job ranks), also of those before
  /// this call. Called from the service thread. `close` is called when the process exits while the communicator still exists: it hands over what
  /// has been sent.
  void add(std::uint64_t id, std::vector<int> members, Listener listener, std::function<void()> close);
  /// The process exits: closes its communicators, then leaves the job.
  void exit();
  /// Returns when no call of the listener is running.
  void remove(std::uint64_t id);

 private:
  struct Entry {
    std::vector<int> members;  // sorted
    Listener listener;
    std::function<void()> close;
  };
  void hear(std::uint64_t communicator, const Failure& failure);

  std::shared_ptr<Control> control_;
  std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
  std::shared_ptr<const Ground> ground_;
  std::map<std::uint64_t, std::shared_ptr<Costs>> costs_;  // by key
  std::vector<Failure> losses_;  // of the whole job, for communicators that are made later
  /// Of communicators that are not here: of other ranks, ended, or still being made, while another of their ranks is
  /// through with that and has failed already. Newest last, bounded.
  std::deque<std::pair<std::uint64_t, Failure>> early_;
};

}  // namespace tamaki
