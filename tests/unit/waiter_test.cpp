// How waits give the core away between scheduling groups.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "communicator/control.hpp"
#include "execute/waiter.hpp"

namespace tamaki {
namespace {

long voluntary_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

WaitPolicy crowded(bool apart) {
  WaitPolicy policy = WaitPolicy::make(true, -1);
  policy.apart = apart;
  return policy;
}

/// One wait that never progresses, until it would sleep on the bell.
void wait_in_vain(const WaitPolicy& policy, YieldRecord& record) {
  Waiter waiter(policy, record);
  while (waiter.spin() || !waiter.slow_round()) {
  }
}

TEST(Waiter, SleepsSoonWhereLooksAreSystemCalls) {
  const WaitPolicy memory = WaitPolicy::make(false, -1), wire = memory.with_descriptors(-1);
  EXPECT_LE(wire.spins, 10);
  EXPECT_EQ(wire.spin_ns, 0);
  EXPECT_EQ(wire.yield_ns, memory.yield_ns);
  // The user's choice stays.
  const WaitPolicy chosen = WaitPolicy::make(false, 500);
  EXPECT_EQ(chosen.with_descriptors(500).spin_ns, 500'000);
  EXPECT_EQ(chosen.with_descriptors(500).spins, chosen.spins);
}

TEST(Waiter, YieldsInsideOneSchedulingGroupHoweverLongItTakes) {
  const WaitPolicy policy = crowded(false);
  YieldRecord record;
  wait_in_vain(policy, record);
  EXPECT_EQ(record.nap_until_ns, 0);
}

TEST(Waiter, NapsBetweenSchedulingGroupsOnceYieldingHasFailed) {
  WaitPolicy policy = crowded(true);
  YieldRecord record;
  wait_in_vain(policy, record);
  ASSERT_GT(record.nap_until_ns, 0);
  // What follows must not depend on how long it takes.
  policy.yield_ns = 3'600'000'000'000;
  record.nap_until_ns = now_ns() + policy.yield_ns;
  const long before = voluntary_switches();
  Waiter waiter(policy, record);
  for (int i = 0; i < 10; ++i) waiter.slow_round();  // 10 naps of at most 50 us and the time until the core is free
  EXPECT_GE(voluntary_switches() - before, 10);
}

TEST(Waiter, TriesYieldingAgainLaterAndLaterWhileItFails) {
  const WaitPolicy policy = crowded(true);
  YieldRecord record;
  wait_in_vain(policy, record);
  const std::int64_t first = record.nap_for_ns;
  ASSERT_GT(first, 0);
  record.nap_for_ns = 8 * first;
  record.nap_until_ns = now_ns();  // is over, and the next wait fails at once
  wait_in_vain(policy, record);
  EXPECT_EQ(record.nap_for_ns, 16 * first);
  record.nap_until_ns = now_ns() - 1000 * record.nap_for_ns;  // yielding has worked for long
  wait_in_vain(policy, record);
  EXPECT_EQ(record.nap_for_ns, first);
}

TEST(SchedulingGroup, IsThatOfTheSession) {
  std::string enabled;
  std::ifstream("/proc/sys/kernel/sched_autogroup_enabled") >> enabled;
  const std::string mine = scheduling_group();
  EXPECT_EQ(scheduling_group(), mine);
  int status = 0;
  const auto in_child = [&](bool own_session) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (own_session) ::setsid();
      ::_exit(scheduling_group() == mine ? 0 : 1);
    }
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(in_child(false));
  // Control groups, and kernels without autogroups, do not care about sessions.
  EXPECT_EQ(in_child(true), mine.rfind("autogroup", 0) != 0) << mine;
  EXPECT_EQ(mine.rfind("autogroup", 0) == 0 && enabled != "1", false) << mine << ", sched_autogroup_enabled " << enabled;
}

}  // namespace
}  // namespace tamaki
