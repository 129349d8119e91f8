#include "communicator/job.hpp"

#include <algorithm>
#include <utility>

namespace tamaki {
namespace {

constexpr std::size_t kEarlyAtMost = 256;

/// Jobs whose communicators a process still holds when it exits: it leaves them in order, so that its peers, who may
/// still be inside their last collective, do not take it for dead.
class LiveJobs {
 public:
  static LiveJobs& of_process() {
    static LiveJobs jobs;
    return jobs;
  }
  ~LiveJobs() {
    const std::lock_guard lock(mutex_);
    for (Job* job : jobs_) job->exit();
  }
  void add(Job* job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  void remove(Job* job) {
    const std::lock_guard lock(mutex_);
    std::erase(jobs_, job);
  }

 private:
  std::mutex mutex_;
  std::vector<Job*> jobs_;
};

}  // namespace

Job::Job(std::shared_ptr<Control> control) : control_(std::move(control)) {
  LiveJobs::of_process().add(this);
  control_->listen([this](std::uint64_t communicator, const Failure& failure) { hear(communicator, failure); });
}

Job::~Job() {
  LiveJobs::of_process().remove(this);
  control_->listen(nullptr);
}

void Job::exit() {
  std::vector<std::function<void()>> closers;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, entry] : entries_) closers.push_back(entry.close);
  }
  control_->listen(nullptr);  // afterwards no listener runs beside the closing
  for (auto& close : closers) close();
  control_->depart();  // last: its word that nothing more will come is true then
}

void Job::add(std::uint64_t id, std::vector<int> members, Listener listener, std::function<void()> close) {
  std::sort(members.begin(), members.end());
  const std::lock_guard lock(mutex_);
  for (const Failure& loss : losses_)
    if (loss.rank < 0 || std::binary_search(members.begin(), members.end(), loss.rank)) listener(loss);
  for (const auto& [communicator, failure] : early_)
    if (communicator == id) listener(failure);
  std::erase_if(early_, [id](const auto& entry) { return entry.first == id; });
  entries_[id] = {std::move(members), std::move(listener), std::move(close)};
}

void Job::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

void Job::hear(std::uint64_t communicator, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (communicator == 0) {
    losses_.push_back(failure);
  } else if (!entries_.contains(communicator)) {
    early_.emplace_back(communicator, failure);
    if (early_.size() > kEarlyAtMost) early_.pop_front();
  }
  for (auto& [id, entry] : entries_) {
    const bool concerned = communicator == id ||
                           (communicator == 0 && (failure.rank < 0 || std::binary_search(entry.members.begin(), entry.members.end(), failure.rank)));
    if (concerned) entry.listener(failure);
  }
}

}  // namespace tamaki
