// Communicators of ranks that are threads.

#include <gtest/gtest.h>

#include <numeric>

#include "support/thread_ranks.hpp"

namespace tamaki {
namespace {

using test::config_for;
using test::run_ranks;

Call allreduce_call(const float* in, float* out, std::size_t count, ReduceOp op = ReduceOp::sum) {
  Call call;
  call.collective = Collective::allreduce;
  call.input = in;
  call.output = out;
  call.count = count;
  call.op.op = op;
  return call;
}

TEST(Communicator, allreduceOfEverySizeOnEveryRankCount) {
  for (int p : {1, 2, 3, 5, 8})
    run_ranks(p, config_for("inproc"), [&](Communicator& c) {
      for (std::size_t n : {0u, 1u, 2u, 13u, 14u, 15u, 139u, 141u, 1000u, 4097u, 100000u, 300001u}) {
        std::vector<float> in(n), out(n, -1.0f);
        for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(c.rank())) % 64);
        for (int round = 0; round < 3; ++round) {
          const Status s = c.run(allreduce_call(in.data(), out.data(), n));
          ASSERT_TRUE(s) << s.error().message;
        }
        for (std::size_t i = 0; i < n; ++i) {
          float want = 0;
          for (int r = 0; r < p; ++r) want += static_cast<float>((i * 7 + static_cast<std::size_t>(r)) % 64);
          ASSERT_EQ(out[i], want) << "p=" << p << " n=" << n << " i=" << i;
        }
        const Status s = c.run(allreduce_call(in.data(), in.data(), n));
        ASSERT_TRUE(s) << s.error().message;
        ASSERT_EQ(in, out) << "in place, p=" << p << " n=" << n;
      }
    });
}

TEST(Communicator, messagesAndSplit) {
  run_ranks(5, config_for("inproc"), [&](Communicator& c) {
    std::vector<int> got(100000, -1), mine(100000, c.rank());
    Call call;
    call.collective = Collective::send_recv;
    call.type = DataType::int32;
    call.input = mine.data();
    call.output = got.data();
    call.count = call.recv_count = mine.size();
    call.destination = (c.rank() + 1) % 5;
    call.source = (c.rank() + 4) % 5;
    const Status s = c.run(call);
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(got, std::vector<int>(100000, (c.rank() + 4) % 5));
    auto child = c.split(c.rank() % 2, -c.rank(), c.config());
    ASSERT_TRUE(child) << child.error().message;
    ASSERT_NE(*child, nullptr);
    EXPECT_EQ((*child)->ranks(), c.rank() % 2 ? 2 : 3);
    EXPECT_EQ((*child)->rank(), (4 - c.rank()) / 2);
    float one = 1, sum = 0;
    const Status t = (*child)->run(allreduce_call(&one, &sum, 1));
    ASSERT_TRUE(t) << t.error().message;
    EXPECT_EQ(sum, static_cast<float>((*child)->ranks()));
  });
}

TEST(Communicator, disagreementIsReported) {
  auto config = config_for("inproc");
  config.timeout_ms = 3000;
  run_ranks(2, config, [&](Communicator& c) {
    float in[64] = {}, out[64] = {};
    const Status s = c.run(allreduce_call(in, out, c.rank() == 0 ? 64 : 32));
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().code, Code::mismatch) << s.error().message;
    EXPECT_FALSE(c.run(allreduce_call(in, out, 1))) << "a failed communicator refuses work";
  });
}

}  // namespace
}  // namespace tamaki
