#include "execute/waiter.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>

namespace tamaki {

WaitPolicy WaitPolicy::make(bool crowded, std::int64_t spin_us_option) {
  WaitPolicy policy;
  if (crowded) {
    policy.spins = 1;
    policy.spin_ns = 0;
    policy.yield_ns = 2'000'000;
  }
  if (spin_us_option >= 0) {
    policy.spin_ns = spin_us_option * 1000;
    if (spin_us_option == 0) policy.spins = 1;
  }
  return policy;
}

bool Waiter::slow_round() {
  const std::int64_t now = now_ns();
  if (began_ == 0) began_ = now;
  const std::int64_t waited = now - began_;
  if (waited < policy_->spin_ns) {
    for (int i = 0; i < 32; ++i) cpu_relax();
    return false;
  }
  if (waited < policy_->spin_ns + policy_->yield_ns) {
    ::sched_yield();
    return false;
  }
  return true;
}

void sleep_for_news(Bell* bell, std::uint32_t ticket, bool bell_shared, const std::vector<int>& descriptors,
                    std::int64_t timeout_ns) {
  if (descriptors.empty()) {
    if (bell != nullptr) sleep_on(*bell, ticket, bell_shared, static_cast<long>(timeout_ns / 1000));
    else ::sched_yield();
    return;
  }
  constexpr std::size_t kMost = 64;
  pollfd polled[kMost];
  const std::size_t count = std::min(kMost, descriptors.size());
  for (std::size_t i = 0; i < count; ++i) polled[i] = {descriptors[i], POLLIN, 0};
  // A futex cannot be polled together with descriptors: with both, naps short against what a nap costs.
  const std::int64_t nap = bell != nullptr ? std::min<std::int64_t>(timeout_ns, 1'000'000) : timeout_ns;
  const timespec timeout{nap / 1'000'000'000, nap % 1'000'000'000};
  ::ppoll(polled, count, &timeout, nullptr);
}

}  // namespace tamaki
