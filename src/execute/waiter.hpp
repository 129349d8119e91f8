#pragma once
// How a rank waits: it spins for a bounded time, gives its core away for a while, then sleeps on its bell. With a core
// for each rank the spin is long; where ranks share cores it is short and giving the core away does the work.
//
// Giving away is sched_yield, which hands the core on within a scheduling group. Ranks in groups of their own (MPICH's
// launcher makes a session, and so an autogroup, for each) get it only while their shares of the core are even: on a
// quiet machine it works, with anything else running each rank keeps the core for milliseconds. There the rank yields
// until that has failed once, and for a while thereafter naps: the kernel wakes all nappers of a core together, after at
// most the timer slack of 50 us, and in between the core is free. See docs/decisions/022-scheduling-groups.md.

#include <cstdint>
#include <ctime>
#include <vector>

#include "base/bell.hpp"

namespace tamaki {

struct WaitPolicy {
  std::int32_t spins = 2000;        // looks before the clock is read for the first time
  std::int64_t spin_ns = 200'000;   // then spinning goes on until so long after the first reading
  std::int64_t yield_ns = 50'000;   // then sched_yield for so long
  std::int64_t sleep_ns = 50'000'000;  // longest single sleep, so that deadlines and deaths are seen
  bool apart = false;  // ranks of this host are in several scheduling groups: sched_yield may not reach them
  /// The same where looking for news takes system calls: some looks are as long as many at memory, and what they cost the
  /// kernel is missing where it moves the data. Nothing is changed where the user has chosen (`spin_us` >= 0).
  WaitPolicy with_descriptors(std::int64_t spin_us) const;
  /// `crowded`: ranks share cores. `spin_us`: option, -1 for the default.
  static WaitPolicy make(bool crowded, std::int64_t spin_us);
};

inline std::int64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// What a communicator's waits learn about giving the core away between scheduling groups. One thread at a time.
struct YieldRecord {
  std::int64_t nap_until_ns = 0;  // until then sched_yield is not tried
  std::int64_t nap_for_ns = 0;    // how long it was not tried after it failed last
};

/// State of one wait. Fresh for each period without progress.
class Waiter {
 public:
  Waiter(const WaitPolicy& policy, YieldRecord& record) : policy_(&policy), record_(&record) {}

  /// True: nothing else is to be done than look again (the fast phase).
  bool spin() {
    if (looks_ >= policy_->spins) return false;
    ++looks_;
    cpu_relax();
    return true;
  }
  /// One round of the slow phase. True: the caller should sleep (prepare, look again, sleep) instead of looking at once.
  bool slow_round();
  /// Since the slow phase began; 0 before.
  std::int64_t waited_ns() const { return began_ == 0 ? 0 : now_ns() - began_; }
  void progressed() { looks_ = 0, began_ = 0; }

 private:
  void judge_yielding(std::int64_t now, std::int64_t waited);
  void give_core_away(std::int64_t now);

  const WaitPolicy* policy_;
  YieldRecord* record_;
  std::int32_t looks_ = 0;
  std::int64_t began_ = 0;  // first slow round since the last progress
};

/// Sleeps on `bell` (null: none) and `descriptors` at once, at most `timeout_ns`; returns early on news. `ticket` is
/// that of prepare_sleep. Where both kinds of news are possible it sleeps on the descriptors for short times.
void sleep_for_news(Bell* bell, std::uint32_t ticket, bool bell_shared, const std::vector<int>& descriptors,
                    std::int64_t timeout_ns);

}  // namespace tamaki
