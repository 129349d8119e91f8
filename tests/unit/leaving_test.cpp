// Ranks as threads that destroy their communicator while others wait for them; and those that only seem to.

#include <atomic>
#include <barrier>

#include "support/thread_ranks.hpp"

namespace tamaki {
namespace {

Call message(int destination, int source, std::int32_t* place) {
  Call call;
  call.collective = Collective::send_recv;
  call.type = DataType::int32;
  call.count = 1;
  call.destination = destination;
  call.source = source;
  if (destination >= 0)
    call.input = place;
  else
    call.output = place;
  return call;
}

class LeavingThreads : public ::testing::TestWithParam<const char*> {};

TEST_P(LeavingThreads, AreNamedToThoseThatWait) {
  for (const bool contact : {false, true})
    for (const int leaver : {0, 1, 2})
      test::run_ranks(3, test::config_for(GetParam()), [&](Communicator& c) {
        Call barrier;
        barrier.collective = Collective::barrier;
        if (contact) {
          ASSERT_TRUE(c.run(barrier));
        }
        if (c.rank() == leaver) return;
        const Status result = c.run(barrier);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().code, Code::peer_lost) << result.error().message;
        EXPECT_NE(result.error().message.find("rank " + std::to_string(leaver) +
                                              " has destroyed its communicator"),
                  std::string::npos)
            << result.error().message;
      });
}

/// Messages of a rank that has left, taken one by one, long after; then one more that it never sent.
TEST_P(LeavingThreads, LeaveTheirMessagesBehind) {
  std::atomic<int> gone{0};
  test::run_ranks(3, test::config_for(GetParam()), [&](Communicator& c) {
    Call barrier;
    barrier.collective = Collective::barrier;
    ASSERT_TRUE(c.run(barrier));
    if (c.rank() == 0) {
      for (std::int32_t i = 0; i < 6; ++i)
        for (int r = 1; r < 3; ++r) ASSERT_TRUE(c.run(message(r, -1, &i)));
      return;
    }
    for (std::int32_t i = 0; i < 6; ++i) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(60));  // so that the departure is known in the middle of it
      std::int32_t got = -1;
      const Status result = c.run(message(-1, 0, &got));
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(got, i);
    }
    ++gone;
    while (gone != 2) std::this_thread::yield();  // the first failure is told to the other rank
    std::int32_t got = -1;
    const Status result = c.run(message(-1, 0, &got));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::peer_lost) << result.error().message;
    EXPECT_NE(result.error().message.find("rank 0 has destroyed its communicator"), std::string::npos)
        << result.error().message;
  });
}

/// Messages to a rank that has left go into its slots until these are full.
TEST_P(LeavingThreads, TakeNoMoreThanTheirSlotsHold) {
  test::run_ranks(2, test::config_for(GetParam()), [&](Communicator& c) {
    std::int32_t value = 1;
    if (c.rank() == 1) {
      ASSERT_TRUE(c.run(message(-1, 0, &value)));
      return;
    }
    Status result;
    int sent = 0;
    for (; sent < 1000 && result; ++sent) result = c.run(message(1, -1, &value));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::peer_lost) << result.error().message;
    EXPECT_NE(result.error().message.find("rank 1 has destroyed its communicator"), std::string::npos) << result.error().message;
  });
}

INSTANTIATE_TEST_SUITE_P(All, LeavingThreads, ::testing::Values("inproc", "shm", "tcp"));

}  // namespace
}  // namespace tamaki
