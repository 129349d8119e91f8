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

WaitPolicy WaitPolicy::with_descriptors(std::int64_t spin_us_option) const {
  WaitPolicy policy = *this;
  if (spin_us_option >= 0) return policy;
  policy.spins = std::min(policy.spins, 10);
  policy.spin_ns = 0;
  return policy;
}

namespace {

// A wait that yields for so long has met a rank that does not get the core; one short of it costs less than a nap gains.
constexpr std::int64_t kYieldPatienceNs = 300'000;
// Yielding is tried again after a time that doubles while it keeps failing.
constexpr std::int64_t kFirstNaps = 20'000'000, kLongestNaps = 320'000'000;

}  // namespace

void Waiter::judge_yielding(std::int64_t now, std::int64_t waited) {
  YieldRecord& record = *record_;
  if (!policy_->apart || now < record.nap_until_ns || waited <= kYieldPatienceNs) return;
  const bool again = now - record.nap_until_ns < record.nap_for_ns;  // failed soon after it was tried again
  record.nap_for_ns = again ? std::min(2 * record.nap_for_ns, kLongestNaps) : kFirstNaps;
  record.nap_until_ns = now + record.nap_for_ns;
}

void Waiter::give_core_away(std::int64_t now) {
  if (now < record_->nap_until_ns) {
    const timespec shortest{0, 1};  // the timer slack makes it at most 50 us
    ::nanosleep(&shortest, nullptr);
  } else {
    ::sched_yield();
  }
}

bool Waiter::slow_round() {
  const std::int64_t now = now_ns();
  if (began_ == 0) began_ = now;
  const std::int64_t waited = now - began_;
  if (waited < policy_->spin_ns) {
    for (int i = 0; i < 32; ++i) cpu_relax();
    return false;
  }
  judge_yielding(now, waited);  // also where a single yield took the whole phase
  if (waited < policy_->spin_ns + policy_->yield_ns) {
    give_core_away(now);
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
