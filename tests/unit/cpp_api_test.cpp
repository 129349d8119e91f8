// The C++ wrapper: that each method makes the call it promises, that sizes are checked, and that handles
// own.
#include "tamaki/tamaki.hpp"

#include <gtest/gtest.h>

#include <array>
#include <list>

#include "unit/c_api_fake.hpp"

namespace tamaki::testing {
namespace {

static_assert(tmk::Input<std::vector<float>> && tmk::Input<const std::array<int, 3>> &&
              tmk::Input<std::span<const double>>);
static_assert(tmk::Output<std::vector<float>> && !tmk::Output<std::span<const float>> &&
              !tmk::Output<const std::vector<int>>);
static_assert(!tmk::Input<std::list<float>> && !tmk::Input<std::vector<bool>> &&
              !tmk::Input<std::vector<std::string>>);
static_assert(tmk::OutputOf<std::vector<float>, std::span<const float>> &&
              !tmk::OutputOf<std::vector<float>, std::vector<int>>);
static_assert(!std::is_copy_constructible_v<tmk::Communicator> &&
              std::is_nothrow_move_constructible_v<tmk::Request>);
static_assert(tmk::TypeOf<unsigned long long>::value == tmkUint64 && tmk::TypeOf<long>::value == tmkInt64);
static_assert(tmk::TypeOf<std::complex<float>>::value == tmkComplex64 &&
              tmk::TypeOf<tmk::bfloat16>::value == tmkBfloat16);

constexpr int kRanks = 4, kRank = 2;

class CppApi : public ::testing::Test {
 protected:
  CppApi() {
    auto made = std::make_unique<FakeCommunicator>(kRank, kRanks);
    fake = made.get();
    comm = tmk::Communicator(c::adopt(std::move(made)));
  }
  const Call& last() {
    EXPECT_FALSE(fake->calls.empty());
    return fake->calls.back();
  }
  template <class Body>
  void refused(Body&& body, const char* part) {
    const std::size_t before = fake->calls.size();
    try {
      body();
      ADD_FAILURE() << "nothing was thrown for: " << part;
    } catch (const tmk::Error& e) {
      EXPECT_EQ(e.code(), tmkInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    EXPECT_EQ(fake->calls.size(), before);
  }
  FakeCommunicator* fake = nullptr;
  tmk::Communicator comm;
};

TEST_F(CppApi, collectivesMakeTheirCalls) {
  std::vector<float> n(3), pn(12);
  const std::vector<std::size_t> counts{1, 2, 3, 4};
  std::vector<float> all(10);
  comm.allreduce(n, std::vector<float>(3));
  EXPECT_EQ(last().collective, Collective::allreduce);
  EXPECT_EQ(last().input, n.data());
  EXPECT_EQ(last().count, 3u);
  comm.allreduce(n, tmk::Op::max);
  EXPECT_EQ(last().input, last().output);
  EXPECT_EQ(last().op.op, ReduceOp::max);
  comm.allreduce(std::span(pn).first(5));
  EXPECT_EQ(last().count, 5u);
  comm.reduce(n, std::span<float>(), 0);
  EXPECT_EQ(last().root, 0);
  comm.broadcast(n, 1);
  EXPECT_EQ(last().root, 1);
  comm.allgather(n, pn);
  EXPECT_EQ(last().count, 3u);
  comm.allgather(pn);
  EXPECT_EQ(last().input, pn.data() + 6);
  comm.allgatherv(n, all, counts);
  EXPECT_EQ(last().recv_counts, counts.data());
  comm.reduce_scatter(pn, n, tmk::Op::min);
  EXPECT_EQ(last().count, 3u);
  comm.reduce_scatterv(all, n, counts);
  EXPECT_EQ(last().collective, Collective::reduce_scatter);
  comm.gather(n, pn, kRank);
  comm.gatherv(n, all, counts, kRank);
  EXPECT_EQ(last().recv_counts, counts.data());
  comm.gatherv(n, std::span<float>(), {}, 1);
  comm.scatter(pn, n, kRank);
  comm.scatterv(all, counts, n, kRank);
  EXPECT_EQ(last().send_counts, counts.data());
  comm.scatter(std::span<const float>(), n, 0);
  comm.alltoall(pn, std::vector<float>(12));
  EXPECT_EQ(last().count, 3u);
  comm.alltoallv(all, counts, std::vector<float>(10), counts);
  comm.barrier();
  EXPECT_EQ(last().collective, Collective::barrier);
  const std::array<tmk::bfloat16, 2> halves{};
  comm.send(halves, 1);
  EXPECT_EQ(last().type, DataType::bfloat16);
  EXPECT_EQ(last().destination, 1);
  std::array<std::complex<double>, 2> z{};
  comm.recv(z, 3);
  EXPECT_EQ(last().type, DataType::complex128);
  comm.sendrecv(n, 0, pn, 1);
  EXPECT_EQ(last().recv_count, 12u);
}

TEST_F(CppApi, sizesThatDoNotFitAreRefused) {
  std::vector<float> n(3), m(4), pn(12);
  const std::vector<std::size_t> counts{1, 2, 3, 4}, few{3};
  refused([&] { comm.allreduce(n, m); }, "allreduce: sizes do not fit: 3 elements against 4");
  refused([&] { comm.reduce(n, m, kRank); }, "reduce");
  refused([&] { comm.allgather(n, m); }, "12 elements against 4");
  refused([&] { comm.allgather(n); }, "3 elements do not divide into 4 blocks");
  refused([&] { comm.allgatherv(n, pn, few); }, "4 elements against 1");
  refused([&] { comm.allgatherv(n, pn, counts); }, "10 elements against 12");
  refused([&] { comm.reduce_scatter(n, m); }, "reduce_scatter");
  refused([&] { comm.gather(n, m, kRank); }, "gather");
  refused([&] { comm.scatter(n, m, kRank); }, "scatter");
  refused([&] { comm.alltoall(n, n); }, "do not divide");
  refused([&] { comm.broadcast(n, 9); }, "tmkBroadcast: root=9");
}

TEST_F(CppApi, requestsAreWaitedForWhenTheyGo) {
  std::vector<float> n(3), pn(12);
  {
    tmk::Request r = comm.iallreduce(n);
    EXPECT_FALSE(r.complete());
  }
  EXPECT_EQ(fake->released, 1);
  tmk::Request r = comm.ibarrier();
  r = comm.iallgather(n, pn);
  EXPECT_EQ(fake->released, 2);
  EXPECT_TRUE(r.test());
  EXPECT_TRUE(r.test());
  EXPECT_EQ(fake->released, 3);
  std::vector<tmk::Request> many;
  for (int i = 0; i < 3; ++i) many.push_back(comm.isend(n, i));
  tmk::wait_all(many);
  EXPECT_EQ(fake->released, 6);
  fake->outcome = fail(Code::peer_lost, "rank 1 ended");
  r = comm.irecv(n, 1);
  EXPECT_THROW(r.wait(), tmk::Error);
  EXPECT_TRUE(r.complete());
}

TEST_F(CppApi, groupsThatAnExceptionLeavesLaunchNothing) {
  std::vector<float> n(3);
  EXPECT_THROW(tmk::group([&] {
                 comm.send(n, 1);
                 throw std::runtime_error("no more");
               }),
               std::runtime_error);
  EXPECT_THROW(tmk::group([&] { comm.send(n, 77); }), tmk::Error);
  EXPECT_TRUE(fake->calls.empty());
  EXPECT_EQ(tmkGroupEnd(), tmkInvalidUsage) << "no group was left open";
}

TEST_F(CppApi, operationsEndWithTheirOwner) {
  std::vector<double> n(3);
  {
    auto scaled = comm.pre_mul_sum(0.5);
    comm.allreduce(n, scaled);
    EXPECT_EQ(last().op.op, ReduceOp::pre_mul_sum);
    auto moved = std::move(scaled);
    EXPECT_EQ(comm.get()->ops.size(), 1);
    int calls = 0;
    const auto latest =
        comm.make_operation<double>([&calls](double, double upper) noexcept { return ++calls, upper; },
                                    tmk::Communicator::Order::by_rank);
    comm.allreduce(n, latest);
    EXPECT_FALSE(last().op.commutative);
    alignas(8) std::byte storage[2 * sizeof(double) + 1];
    const double lower[2] = {1, 2}, upper[2] = {3, 4};
    std::memcpy(storage + 1, upper, sizeof upper);
    last().op.user(lower, storage + 1, 2, tmkFloat64, last().op.user_context);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(std::memcmp(storage + 1, upper, sizeof upper), 0);
  }
  EXPECT_EQ(comm.get()->ops.size(), 0);
}

TEST_F(CppApi, communicatorsAreOwned) {
  EXPECT_EQ(comm.rank(), kRank);
  EXPECT_EQ(comm.size(), kRanks);
  EXPECT_FALSE(comm.split(std::nullopt, 0));
  tmk::Communicator child =
      comm.split(0, 5, {.timeout = std::chrono::milliseconds(70), .reproducible = true, .name = "x"});
  EXPECT_EQ(fake->split_key, 5);
  EXPECT_EQ(child.get()->impl->config().timeout_ms, 70);
  EXPECT_TRUE(child.get()->impl->config().reproducible);
  EXPECT_EQ(child.get()->impl->config().name, "x");
  child.set_timeout(std::chrono::seconds(2));
  EXPECT_EQ(child.get()->impl->config().timeout_ms, 2000);
  EXPECT_EQ(child.health(), tmkSuccess);
  const tmkComm_t raw = child.get();
  child.close();
  EXPECT_FALSE(child);
  EXPECT_EQ(tmkBarrier(raw), tmkInvalidArgument);
  fake->next = fail(Code::timeout, "rank 0 was late");
  EXPECT_THROW(comm.close(), tmk::Error);
}

}  // namespace
}  // namespace tamaki::testing
