#include "communicator/job.hpp"

#include <algorithm>
#include <utility>

namespace tamaki {

Job::Job(std::shared_ptr<Control> control) : control_(std::move(control)) {
  control_->listen([this](std::uint64_t communicator, const Failure& failure) { hear(communicator, failure); });
}

Job::~Job() { control_->listen(nullptr); }

void Job::add(std::uint64_t id, std::vector<int> members, Listener listener) {
  std::sort(members.begin(), members.end());
  const std::lock_guard lock(mutex_);
  for (const Failure& loss : losses_)
    if (loss.rank < 0 || std::binary_search(members.begin(), members.end(), loss.rank)) listener(loss);
  entries_[id] = {std::move(members), std::move(listener)};
}

void Job::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

void Job::hear(std::uint64_t communicator, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (communicator == 0) losses_.push_back(failure);
  for (auto& [id, entry] : entries_) {
    const bool concerned = communicator == id ||
                           (communicator == 0 && (failure.rank < 0 || std::binary_search(entry.members.begin(), entry.members.end(), failure.rank)));
    if (concerned) entry.listener(failure);
  }
}

}  // namespace tamaki
