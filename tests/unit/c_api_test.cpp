// Every function of tamaki.h with arguments that are wrong: the documented code, and a text naming
// function, parameter and value. Nothing of it may reach the communicator.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "unit/c_api_fake.hpp"

namespace tamaki::testing {
namespace {

constexpr int kRanks = 4, kRank = 2;

class CApi : public ::testing::Test {
 protected:
  CApi() {
    auto made = std::make_unique<FakeCommunicator>(kRank, kRanks, CommunicatorConfig{.name = "dp"});
    fake = made.get();
    comm = c::adopt(std::move(made));
  }
  ~CApi() override {
    if (comm != nullptr) c::retire(comm);
  }

  /// Fails the test unless `result` is `code` and both texts hold every one of `parts`.
  void expect(tmkResult_t result, tmkResult_t code, std::initializer_list<const char*> parts,
              bool of_communicator = true) {
    EXPECT_EQ(result, code) << tmkGetLastError(nullptr);
    for (const char* part : parts) {
      EXPECT_NE(std::strstr(tmkGetLastError(nullptr), part), nullptr)
          << "\"" << part << "\" is missing in: " << tmkGetLastError(nullptr);
      if (of_communicator) {
        EXPECT_NE(std::strstr(tmkGetLastError(comm), part), nullptr)
            << "\"" << part << "\" is missing in: " << tmkGetLastError(comm);
      }
    }
    EXPECT_TRUE(fake->calls.empty()) << "the call reached the communicator";
  }
  void refused(tmkResult_t result, std::initializer_list<const char*> parts) {
    expect(result, tmkInvalidArgument, parts);
  }
  const Call& last_call() {
    EXPECT_FALSE(fake->calls.empty());
    return fake->calls.back();
  }

  FakeCommunicator* fake = nullptr;
  tmkComm_t comm = nullptr;
  std::array<float, 64> send{}, recv{};
  std::array<std::size_t, kRanks> counts{1, 2, 3, 4};
  tmkRequest_t request = nullptr;
};

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
const tmkDataType_t kNoType = static_cast<tmkDataType_t>(99);
const tmkDataType_t kNegativeType = static_cast<tmkDataType_t>(-1);

// One row an operation, blocking and not, with every argument right. The tests below spoil one argument at
// a time.
struct Arguments {
  const void* send;
  void* recv;
  std::size_t count = 1;
  tmkDataType_t type = tmkFloat32;
  tmkOp_t op = tmkSum;
  int root = kRank;
  const std::size_t* counts;
  tmkComm_t comm;
  tmkRequest_t* request;
};
struct Operation {
  const char* name;
  std::function<tmkResult_t(const Arguments&)> call;
  bool has_op = false, has_root = false, has_count = true, has_counts = false, has_send = true,
       has_recv = true;
  const char* root_name = "root";
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"tmkAllreduce", [](auto& a) { return tmkAllreduce(a.send, a.recv, a.count, a.type, a.op, a.comm); },
       true},
      {"tmkIallreduce",
       [](auto& a) { return tmkIallreduce(a.send, a.recv, a.count, a.type, a.op, a.comm, a.request); },
       true},
      {"tmkReduce",
       [](auto& a) { return tmkReduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.comm); }, true,
       true},
      {"tmkIreduce",
       [](auto& a) { return tmkIreduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.comm, a.request); },
       true, true},
      {"tmkBroadcast",
       [](auto& a) { return tmkBroadcast(a.send, a.recv, a.count, a.type, a.root, a.comm); }, false, true},
      {"tmkIbroadcast",
       [](auto& a) { return tmkIbroadcast(a.send, a.recv, a.count, a.type, a.root, a.comm, a.request); },
       false, true},
      {"tmkAllgather", [](auto& a) { return tmkAllgather(a.send, a.recv, a.count, a.type, a.comm); }},
      {"tmkIallgather",
       [](auto& a) { return tmkIallgather(a.send, a.recv, a.count, a.type, a.comm, a.request); }},
      {"tmkAllgatherv",
       [](auto& a) { return tmkAllgatherv(a.send, a.recv, a.counts, nullptr, a.type, a.comm); }, false,
       false, false, true},
      {"tmkIallgatherv",
       [](auto& a) { return tmkIallgatherv(a.send, a.recv, a.counts, nullptr, a.type, a.comm, a.request); },
       false, false, false, true},
      {"tmkReduceScatter",
       [](auto& a) { return tmkReduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm); }, true},
      {"tmkIreduceScatter",
       [](auto& a) { return tmkIreduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm, a.request); },
       true},
      {"tmkReduceScatterv",
       [](auto& a) { return tmkReduceScatterv(a.send, a.recv, a.counts, a.type, a.op, a.comm); }, true,
       false, false, true},
      {"tmkIreduceScatterv",
       [](auto& a) {
         return tmkIreduceScatterv(a.send, a.recv, a.counts, a.type, a.op, a.comm, a.request);
       },
       true, false, false, true},
      {"tmkGather", [](auto& a) { return tmkGather(a.send, a.recv, a.count, a.type, a.root, a.comm); },
       false, true},
      {"tmkIgather",
       [](auto& a) { return tmkIgather(a.send, a.recv, a.count, a.type, a.root, a.comm, a.request); },
       false, true},
      {"tmkGatherv",
       [](auto& a) { return tmkGatherv(a.send, 3, a.recv, a.counts, nullptr, a.type, a.root, a.comm); },
       false, true, false, true},
      {"tmkIgatherv",
       [](auto& a) {
         return tmkIgatherv(a.send, 3, a.recv, a.counts, nullptr, a.type, a.root, a.comm, a.request);
       },
       false, true, false, true},
      {"tmkScatter", [](auto& a) { return tmkScatter(a.send, a.recv, a.count, a.type, a.root, a.comm); },
       false, true},
      {"tmkIscatter",
       [](auto& a) { return tmkIscatter(a.send, a.recv, a.count, a.type, a.root, a.comm, a.request); },
       false, true},
      {"tmkScatterv",
       [](auto& a) { return tmkScatterv(a.send, a.counts, nullptr, a.recv, 3, a.type, a.root, a.comm); },
       false, true, false, true},
      {"tmkIscatterv",
       [](auto& a) {
         return tmkIscatterv(a.send, a.counts, nullptr, a.recv, 3, a.type, a.root, a.comm, a.request);
       },
       false, true, false, true},
      {"tmkAlltoall", [](auto& a) { return tmkAlltoall(a.send, a.recv, a.count, a.type, a.comm); }},
      {"tmkIalltoall",
       [](auto& a) { return tmkIalltoall(a.send, a.recv, a.count, a.type, a.comm, a.request); }},
      {"tmkAlltoallv",
       [](auto& a) {
         return tmkAlltoallv(a.send, a.counts, nullptr, a.recv, a.counts, nullptr, a.type, a.comm);
       },
       false, false, false, true},
      {"tmkIalltoallv",
       [](auto& a) {
         return tmkIalltoallv(a.send, a.counts, nullptr, a.recv, a.counts, nullptr, a.type, a.comm,
                              a.request);
       },
       false, false, false, true},
      {"tmkSend", [](auto& a) { return tmkSend(a.send, a.count, a.type, a.root, a.comm); }, false, true,
       true, false, true, false, "peer"},
      {"tmkIsend", [](auto& a) { return tmkIsend(a.send, a.count, a.type, a.root, a.comm, a.request); },
       false, true, true, false, true, false, "peer"},
      {"tmkRecv", [](auto& a) { return tmkRecv(a.recv, a.count, a.type, a.root, a.comm); }, false, true,
       true, false, false, true, "peer"},
      {"tmkIrecv", [](auto& a) { return tmkIrecv(a.recv, a.count, a.type, a.root, a.comm, a.request); },
       false, true, true, false, false, true, "peer"},
      {"tmkSendrecv",
       [](auto& a) { return tmkSendrecv(a.send, a.count, a.root, a.recv, a.count, 0, a.type, a.comm); },
       false, true, true, false, true, true, "dest"},
  };
  return all;
}

bool nonblocking(const Operation& o) { return o.name[3] == 'I'; }

class Operations : public CApi {
 protected:
  Arguments right() {
    return {.send = send.data(),
            .recv = recv.data(),
            .counts = counts.data(),
            .comm = comm,
            .request = &request};
  }
};

TEST_F(Operations, rightArgumentsReachTheCommunicator) {
  for (const Operation& o : operations()) {
    fake->calls.clear();
    request = nullptr;
    EXPECT_EQ(o.call(right()), tmkSuccess) << o.name << ": " << tmkGetLastError(nullptr);
    EXPECT_EQ(fake->calls.size(), 1u) << o.name;
    EXPECT_EQ(request != nullptr, nonblocking(o)) << o.name;
    EXPECT_EQ(tmkWait(&request), tmkSuccess);
  }
  EXPECT_EQ(fake->released, 15);
}

TEST_F(Operations, refuseAHandleThatIsNone) {
  tmkComm_t ended = c::adopt(std::make_unique<FakeCommunicator>(0, 1));
  ASSERT_EQ(tmkCommDestroy(ended), tmkSuccess);
  for (const Operation& o : operations()) {
    Arguments a = right();
    a.comm = nullptr;
    expect(o.call(a), tmkInvalidArgument, {o.name, "comm is NULL"}, false);
    a.comm = ended;
    expect(o.call(a), tmkInvalidArgument, {o.name, "comm=0x", "destroyed"}, false);
  }
}

TEST_F(Operations, refuseTypesOutOfRange) {
  for (const Operation& o : operations()) {
    Arguments a = right();
    a.type = kNoType;
    refused(o.call(a), {o.name, "\"dp\"", "type=99 is not in 0..16"});
    a.type = kNegativeType;
    refused(o.call(a), {o.name, "type=-1"});
  }
}

TEST_F(Operations, refuseOperationsOutOfRange) {
  for (const Operation& o : operations()) {
    if (!o.has_op) continue;
    Arguments a = right();
    for (const tmkOp_t op : {11, -1, 1 << 30, std::numeric_limits<int>::max()}) {
      a.op = op;
      refused(o.call(a), {o.name, ("op=" + std::to_string(op)).c_str(), "0..10"});
    }
    a.op = tmkBitAnd;
    refused(o.call(a), {o.name, "op band is not defined for type f32"});
    a.op = tmkMax;
    a.type = tmkComplex64;
    refused(o.call(a), {o.name, "op max is not defined for type c64"});
    a.op = tmkSum;
    a.type = tmkBytes;
    refused(o.call(a), {o.name, "op sum is not defined for type bytes"});
  }
}

TEST_F(Operations, refuseRanksOutOfRange) {
  for (const Operation& o : operations()) {
    if (!o.has_root) continue;
    Arguments a = right();
    for (const int root : {-1, kRanks, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      a.root = root;
      refused(o.call(a), {o.name, (std::string(o.root_name) + "=" + std::to_string(root)).c_str(), "0..3"});
    }
  }
}

TEST_F(Operations, refuseNullBuffersUnlessNothingIsThere) {
  for (const Operation& o : operations()) {
    if (o.has_send) {
      Arguments a = right();
      a.send = nullptr;
      refused(o.call(a), {o.name, "send is NULL", "of type f32"});
    }
    if (o.has_recv) {
      Arguments a = right();
      a.recv = nullptr;
      refused(o.call(a), {o.name, "recv is NULL", "of type f32"});
    }
    if (!o.has_count) continue;
    Arguments a = right();
    a.send = a.recv = nullptr;
    a.count = 0;
    EXPECT_EQ(o.call(a), tmkSuccess) << o.name;
    EXPECT_EQ(tmkWait(&request), tmkSuccess);
    fake->calls.clear();
  }
}

TEST_F(Operations, refuseCountsBeyondTheAddressSpace) {
  for (const Operation& o : operations()) {
    Arguments a = right();
    if (o.has_count) {
      for (const std::size_t count : {kHuge, kHuge / 4, kHuge / 8 + 1}) {
        a.count = count;
        refused(o.call(a), {o.name, ("count=" + std::to_string(count)).c_str(), "address space"});
      }
    } else {
      counts[1] = kHuge / 2;
      refused(o.call(a), {o.name, "counts[1]=", std::to_string(kHuge / 2).c_str(), "address space"});
      counts[1] = kHuge / 9;  // each fits, their sum does not
      counts[0] = kHuge / 9;
      refused(o.call(a), {o.name, "counts[1]="});
      counts = {1, 2, 3, 4};
      a.counts = nullptr;
      refused(o.call(a), {o.name, "counts is NULL"});
    }
  }
}

TEST_F(Operations, refuseARequestThatIsNull) {
  for (const Operation& o : operations()) {
    if (!nonblocking(o)) continue;
    Arguments a = right();
    a.request = nullptr;
    refused(o.call(a), {o.name, "request is NULL"});
    a = right();
    a.type = kNoType;
    request = reinterpret_cast<tmkRequest_t>(&recv);
    refused(o.call(a), {o.name});
    EXPECT_EQ(request, nullptr) << "a failed start leaves no request";
  }
}

TEST_F(Operations, refuseInPlaceWhereItHasNoForm) {
  for (const Operation& o : operations()) {
    Arguments a = right();
    if (o.has_recv) {
      a.recv = const_cast<void*>(TMK_IN_PLACE);
      refused(o.call(a), {o.name, "recv is TMK_IN_PLACE"});
    }
  }
  Arguments a = right();
  a.send = TMK_IN_PLACE;
  a.root = 0;  // not this rank
  for (const char* name :
       {"tmkReduce", "tmkIreduce", "tmkGather", "tmkIgather", "tmkGatherv", "tmkIgatherv", "tmkAlltoallv",
        "tmkIalltoallv", "tmkSend", "tmkIsend", "tmkSendrecv"})
    for (const Operation& o : operations())
      if (std::strcmp(o.name, name) == 0) refused(o.call(a), {name, "send is TMK_IN_PLACE"});
}

TEST_F(Operations, passOnErrorsOfTheCommunicator) {
  fake->next = fail(Code::peer_lost, "rank 3 (host b, pid 9) ended", Scope::communicator);
  for (const Operation& o : operations()) {
    fake->calls.clear();
    EXPECT_EQ(o.call(right()), tmkPeerLost) << o.name;
    EXPECT_EQ(std::string(tmkGetLastError(comm)),
              std::string(o.name) + " \"dp\": rank 3 (host b, pid 9) ended");
    EXPECT_EQ(request, nullptr);
  }
}

TEST_F(CApi, inPlacePointersAreResolved) {
  float* const r = recv.data();
  const auto input = [&] { return static_cast<const float*>(last_call().input); };
  ASSERT_EQ(tmkAllreduce(TMK_IN_PLACE, r, 3, tmkFloat32, tmkSum, comm), tmkSuccess);
  EXPECT_EQ(input(), r);
  ASSERT_EQ(tmkReduce(TMK_IN_PLACE, r, 3, tmkFloat32, tmkSum, kRank, comm), tmkSuccess);
  EXPECT_EQ(input(), r);
  ASSERT_EQ(tmkBroadcast(TMK_IN_PLACE, r, 3, tmkFloat32, kRank, comm), tmkSuccess);
  EXPECT_EQ(input(), r);
  ASSERT_EQ(tmkAllgather(TMK_IN_PLACE, r, 3, tmkFloat32, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 2 * 3);
  ASSERT_EQ(tmkAllgatherv(TMK_IN_PLACE, r, counts.data(), nullptr, tmkFloat32, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 1 + 2);
  const std::size_t displs[kRanks] = {20, 10, 5, 0};
  ASSERT_EQ(tmkAllgatherv(TMK_IN_PLACE, r, counts.data(), displs, tmkFloat32, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 5);
  ASSERT_EQ(tmkReduceScatter(TMK_IN_PLACE, r + 30, 3, tmkFloat32, tmkSum, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 30 - 2 * 3);
  ASSERT_EQ(tmkReduceScatterv(TMK_IN_PLACE, r + 30, counts.data(), tmkFloat32, tmkSum, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 30 - 3);
  ASSERT_EQ(tmkGather(TMK_IN_PLACE, r, 3, tmkFloat32, kRank, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 2 * 3);
  ASSERT_EQ(tmkGatherv(TMK_IN_PLACE, 3, r, counts.data(), nullptr, tmkFloat32, kRank, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 3);
  ASSERT_EQ(tmkScatter(TMK_IN_PLACE, r + 30, 3, tmkFloat32, kRank, comm), tmkSuccess);
  EXPECT_EQ(input(), r + 30 - 2 * 3);
  ASSERT_EQ(tmkScatterv(TMK_IN_PLACE, counts.data(), nullptr, r + 30, 3, tmkFloat32, kRank, comm),
            tmkSuccess);
  EXPECT_EQ(input(), r + 30 - 3);
  ASSERT_EQ(tmkAlltoall(TMK_IN_PLACE, r, 3, tmkFloat32, comm), tmkSuccess);
  EXPECT_EQ(input(), r);
  for (const Call& call : fake->calls) EXPECT_NE(call.input, TMK_IN_PLACE);
}

TEST_F(CApi, buffersThatARankDoesNotUseAreNotRead) {
  ASSERT_EQ(tmkReduce(send.data(), nullptr, 3, tmkFloat32, tmkSum, 0, comm), tmkSuccess);
  ASSERT_EQ(tmkBroadcast(nullptr, recv.data(), 3, tmkFloat32, 0, comm), tmkSuccess);
  ASSERT_EQ(tmkGather(send.data(), nullptr, 3, tmkFloat32, 0, comm), tmkSuccess);
  ASSERT_EQ(tmkGatherv(send.data(), 3, nullptr, nullptr, nullptr, tmkFloat32, 0, comm), tmkSuccess);
  ASSERT_EQ(tmkScatter(nullptr, recv.data(), 3, tmkFloat32, 0, comm), tmkSuccess);
  ASSERT_EQ(tmkScatterv(nullptr, nullptr, nullptr, recv.data(), 3, tmkFloat32, 0, comm), tmkSuccess);
  EXPECT_EQ(fake->calls.size(), 6u);
}

TEST_F(CApi, ownBlocksOfUnevenFormsMustAgree) {
  refused(tmkGatherv(send.data(), 2, recv.data(), counts.data(), nullptr, tmkFloat32, kRank, comm),
          {"tmkGatherv", "count=2", "counts[2]=3"});
  refused(tmkScatterv(send.data(), counts.data(), nullptr, recv.data(), 2, tmkFloat32, kRank, comm),
          {"tmkScatterv", "count=2", "counts[2]=3"});
  const std::size_t other[kRanks] = {1, 2, 9, 4};
  refused(tmkAlltoallv(send.data(), counts.data(), nullptr, recv.data(), other, nullptr, tmkFloat32, comm),
          {"tmkAlltoallv", "send_counts[2]=3", "recv_counts[2]=9"});
  const std::size_t far[kRanks] = {0, 0, 0, kHuge / 4};
  refused(tmkAllgatherv(send.data(), recv.data(), counts.data(), far, tmkFloat32, comm),
          {"tmkAllgatherv", "displacement", "block 3"});
}

TEST_F(CApi, sendrecvNamesItsSource) {
  refused(tmkSendrecv(send.data(), 1, 0, recv.data(), 1, 4, tmkFloat32, comm),
          {"tmkSendrecv", "source=4", "0..3"});
  refused(tmkSendrecv(send.data(), 1, 0, recv.data(), kHuge, 1, tmkFloat32, comm),
          {"tmkSendrecv", "recv_count="});
  ASSERT_EQ(tmkSendrecv(send.data(), 5, 0, recv.data(), 6, 1, tmkFloat32, comm), tmkSuccess);
  EXPECT_EQ(last_call().count, 5u);
  EXPECT_EQ(last_call().recv_count, 6u);
  EXPECT_EQ(last_call().destination, 0);
  EXPECT_EQ(last_call().source, 1);
  ASSERT_EQ(tmkRecv(recv.data(), 7, tmkFloat32, 3, comm), tmkSuccess);
  EXPECT_EQ(last_call().count, 7u);
  EXPECT_EQ(last_call().destination, -1);
  ASSERT_EQ(tmkSend(send.data(), 8, tmkFloat32, 3, comm), tmkSuccess);
  EXPECT_EQ(last_call().count, 8u);
  EXPECT_EQ(last_call().source, -1);
}

TEST_F(CApi, operationsLiveOnTheirCommunicatorOnly) {
  tmkOp_t op = -5;
  const float scalar = 2;
  refused(tmkOpCreatePreMulSum(nullptr, &scalar, tmkFloat32, comm), {"tmkOpCreatePreMulSum", "op is NULL"});
  refused(tmkOpCreatePreMulSum(&op, nullptr, tmkFloat32, comm), {"scalar is NULL"});
  refused(tmkOpCreatePreMulSum(&op, &scalar, kNoType, comm), {"type=99"});
  refused(tmkOpCreatePreMulSum(&op, &scalar, tmkBytes, comm), {"type bytes"});
  refused(tmkOpCreate(&op, nullptr, 1, nullptr, comm), {"tmkOpCreate", "function is NULL"});
  const auto function = [](const void*, void*, size_t, tmkDataType_t, void*) {};
  refused(tmkOpCreate(&op, function, 2, nullptr, comm), {"commutative=2"});
  refused(tmkOpCreate(nullptr, function, 1, nullptr, comm), {"op is NULL"});
  refused(tmkOpDestroy(tmkSum, comm), {"tmkOpDestroy", "op=0 is predefined"});
  refused(tmkOpDestroy(tmkNumOps, comm), {"op=11 is not an operation"});

  ASSERT_EQ(tmkOpCreatePreMulSum(&op, &scalar, tmkFloat32, comm), tmkSuccess);
  ASSERT_EQ(tmkAllreduce(send.data(), recv.data(), 1, tmkFloat32, op, comm), tmkSuccess);
  EXPECT_EQ(last_call().op.op, ReduceOp::pre_mul_sum);
  EXPECT_EQ(std::memcmp(last_call().op.scalar, &scalar, sizeof scalar), 0);
  fake->calls.clear();
  refused(tmkAllreduce(send.data(), recv.data(), 1, tmkFloat64, op, comm),
          {"scalar of type f32", "type is f64"});
  tmkComm_t other = c::adopt(std::make_unique<FakeCommunicator>(0, 1));
  EXPECT_EQ(tmkAllreduce(send.data(), recv.data(), 1, tmkFloat32, op, other), tmkInvalidArgument);
  EXPECT_EQ(tmkOpDestroy(op, other), tmkInvalidArgument);
  c::retire(other);

  const tmkOp_t destroyed = op;
  ASSERT_EQ(tmkOpDestroy(op, comm), tmkSuccess);
  refused(tmkOpDestroy(destroyed, comm), {"is not an operation of this communicator"});
  ASSERT_EQ(tmkOpCreate(&op, function, 0, &recv, comm), tmkSuccess);
  EXPECT_NE(op, destroyed) << "the place is reused, the handle is not";
  refused(tmkAllreduce(send.data(), recv.data(), 1, tmkFloat32, destroyed, comm), {"op="});
  ASSERT_EQ(tmkAllreduce(send.data(), recv.data(), 1, tmkBytes, op, comm), tmkSuccess);
  EXPECT_FALSE(last_call().op.commutative);
  EXPECT_EQ(last_call().op.user_context, &recv);
}

TEST_F(CApi, operationsRunOutWithAnError) {
  const float scalar = 2;
  std::vector<tmkOp_t> ops(4096);
  for (tmkOp_t& op : ops) ASSERT_EQ(tmkOpCreatePreMulSum(&op, &scalar, tmkFloat32, comm), tmkSuccess);
  tmkOp_t more = 0;
  expect(tmkOpCreatePreMulSum(&more, &scalar, tmkFloat32, comm), tmkOutOfMemory, {"4096"});
  for (const tmkOp_t op : ops) ASSERT_EQ(tmkOpDestroy(op, comm), tmkSuccess);
}

TEST_F(CApi, requestsCompleteOnce) {
  int done = -1;
  EXPECT_EQ(tmkTest(nullptr, &done), tmkInvalidArgument);
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkTest: request is NULL");
  EXPECT_EQ(tmkTest(&request, nullptr), tmkInvalidArgument);
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkTest: done is NULL");
  EXPECT_EQ(tmkWait(nullptr), tmkInvalidArgument);
  EXPECT_EQ(tmkWait(&request), tmkSuccess) << "no request is complete";
  EXPECT_EQ(tmkTest(&request, &done), tmkSuccess);
  EXPECT_EQ(done, 1);

  fake->completes = false;
  ASSERT_EQ(tmkIbarrier(comm, &request), tmkSuccess);
  EXPECT_EQ(tmkTest(&request, &done), tmkSuccess);
  EXPECT_EQ(done, 0);
  ASSERT_NE(request, nullptr);
  const tmkRequest_t stale = request;
  fake->completes = true;
  EXPECT_EQ(tmkTest(&request, &done), tmkSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(fake->released, 1);
  tmkRequest_t copy = stale;
  EXPECT_EQ(tmkWait(&copy), tmkInvalidArgument);
  EXPECT_NE(std::strstr(tmkGetLastError(nullptr), "completed already"), nullptr);

  fake->outcome = fail(Code::timeout, "rank 1 was late");
  ASSERT_EQ(tmkIbarrier(comm, &request), tmkSuccess);
  EXPECT_EQ(tmkWait(&request), tmkTimeout);
  EXPECT_STREQ(tmkGetLastError(comm), "tmkWait \"dp\": rank 1 was late");
  EXPECT_EQ(request, nullptr) << "freed on failure too";
}

TEST_F(CApi, waitAllFreesAllAndGivesTheFirstFailure) {
  EXPECT_EQ(tmkWaitAll(-1, nullptr), tmkInvalidArgument);
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkWaitAll: count=-1 is negative");
  EXPECT_EQ(tmkWaitAll(1, nullptr), tmkInvalidArgument);
  EXPECT_EQ(tmkWaitAll(0, nullptr), tmkSuccess);
  int index = 7;
  EXPECT_EQ(tmkWaitAny(1, nullptr, &index), tmkInvalidArgument);
  EXPECT_EQ(tmkWaitAny(1, &request, nullptr), tmkInvalidArgument);
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkWaitAny: index is NULL");

  tmkRequest_t requests[3] = {};
  ASSERT_EQ(tmkIbarrier(comm, &requests[0]), tmkSuccess);
  ASSERT_EQ(tmkIbarrier(comm, &requests[2]), tmkSuccess);
  fake->outcome = fail(Code::aborted, "aborted");
  EXPECT_EQ(tmkWaitAll(3, requests), tmkAborted);
  for (const tmkRequest_t r : requests) EXPECT_EQ(r, nullptr);
  EXPECT_EQ(fake->released, 2);
}

TEST_F(CApi, groupsLaunchNothingAfterAnError) {
  EXPECT_EQ(tmkGroupEnd(), tmkInvalidUsage);
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkGroupEnd: no group is open on this thread");

  ASSERT_EQ(tmkGroupStart(), tmkSuccess);
  ASSERT_EQ(tmkGroupStart(), tmkSuccess);
  ASSERT_EQ(tmkIsend(send.data(), 1, tmkFloat32, 0, comm, &request), tmkSuccess);
  EXPECT_EQ(tmkWait(&request), tmkInvalidUsage);
  EXPECT_NE(std::strstr(tmkGetLastError(nullptr), "group is still open"), nullptr);
  ASSERT_EQ(tmkSend(send.data(), 1, tmkFloat32, 0, comm), tmkSuccess);
  EXPECT_EQ(tmkSend(send.data(), 1, tmkFloat32, 17, comm), tmkInvalidArgument);
  EXPECT_EQ(tmkCommDestroy(comm), tmkInvalidUsage);
  tmkComm_t made = nullptr;
  EXPECT_EQ(tmkCommSplit(comm, 0, 0, &made, nullptr), tmkInvalidUsage);
  EXPECT_EQ(tmkCommInitEnv(&made, nullptr), tmkInvalidUsage);
  ASSERT_EQ(tmkGroupEnd(), tmkSuccess);
  EXPECT_EQ(tmkGroupEnd(), tmkInvalidArgument);
  EXPECT_NE(std::strstr(tmkGetLastError(comm), "tmkSend \"dp\": peer=17"), nullptr)
      << tmkGetLastError(comm);
  EXPECT_TRUE(fake->calls.empty());
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(tmkWait(&request), tmkInvalidArgument);
  EXPECT_NE(std::strstr(tmkGetLastError(comm), "its group was not launched"), nullptr);
  EXPECT_EQ(request, nullptr);
}

TEST_F(CApi, communicatorFunctionsCheckTheirArguments) {
  tmkUniqueId id{};
  tmkComm_t made = comm;
  int number = 0;
  const auto allgather = [](const void*, void*, size_t, void*) { return 1; };
  expect(tmkGetUniqueId(nullptr), tmkInvalidArgument, {"tmkGetUniqueId", "id is NULL"}, false);
  expect(tmkGetVersion(nullptr), tmkInvalidArgument, {"tmkGetVersion", "version is NULL"}, false);
  expect(tmkCommInitRank(nullptr, 1, id, 0, nullptr), tmkInvalidArgument,
         {"tmkCommInitRank", "comm is NULL"}, false);
  expect(tmkCommInitRank(&made, 0, id, 0, nullptr), tmkInvalidArgument, {"ranks=0 is not in 1.."}, false);
  EXPECT_EQ(made, nullptr) << "a failed creation leaves no handle";
  expect(tmkCommInitRank(&made, 2, id, 2, nullptr), tmkInvalidArgument, {"rank=2 is not in 0..1"}, false);
  expect(tmkCommInitRank(&made, 2, id, -1, nullptr), tmkInvalidArgument, {"rank=-1"}, false);
  expect(tmkCommInitEnv(nullptr, nullptr), tmkInvalidArgument, {"tmkCommInitEnv", "comm is NULL"}, false);
  expect(tmkCommInitCallbacks(nullptr, 1, 0, allgather, nullptr, nullptr), tmkInvalidArgument,
         {"tmkCommInitCallbacks", "comm is NULL"}, false);
  expect(tmkCommInitCallbacks(&made, 1, 0, nullptr, nullptr, nullptr), tmkInvalidArgument,
         {"allgather is NULL"}, false);
  expect(tmkCommInitCallbacks(&made, 3, 5, allgather, nullptr, nullptr), tmkInvalidArgument, {"rank=5"},
         false);
  refused(tmkCommSplit(comm, -2, 0, &made, nullptr), {"tmkCommSplit", "color=-2", "TMK_SPLIT_NOCOLOR"});
  refused(tmkCommSplit(comm, 0, 0, nullptr, nullptr), {"newcomm is NULL"});
  refused(tmkCommDup(comm, nullptr), {"tmkCommDup", "newcomm is NULL"});
  refused(tmkCommGetAsyncError(comm, nullptr), {"tmkCommGetAsyncError", "error is NULL"});
  refused(tmkCommRank(comm, nullptr), {"tmkCommRank", "rank is NULL"});
  refused(tmkCommSize(comm, nullptr), {"tmkCommSize", "size is NULL"});
  refused(tmkCommSetTimeout(comm, 0), {"tmkCommSetTimeout", "timeout_ms=0 is not in 1..2147483647"});
  refused(tmkCommSetTimeout(comm, -1), {"timeout_ms=-1"});
  for (const tmkResult_t result :
       {tmkCommSplit(nullptr, 0, 0, &made, nullptr), tmkCommDup(nullptr, &made), tmkCommDestroy(nullptr),
        tmkCommAbort(nullptr), tmkCommGetAsyncError(nullptr, nullptr), tmkCommRank(nullptr, &number),
        tmkCommSize(nullptr, &number), tmkCommSetTimeout(nullptr, 1), tmkBarrier(nullptr),
        tmkIbarrier(nullptr, &request)})
    expect(result, tmkInvalidArgument, {"comm is NULL"}, false);
}

TEST_F(CApi, memoryFunctionsCheckTheirArguments) {
  void* pointer = &recv;
  expect(tmkMemAlloc(nullptr, 1), tmkInvalidArgument, {"tmkMemAlloc", "pointer is NULL"}, false);
  expect(tmkMemAlloc(&pointer, kHuge), tmkInvalidArgument, {"bytes=18446744073709551615"}, false);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(tmkMemAlloc(&pointer, 0), tmkSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(tmkMemFree(nullptr), tmkSuccess);
  refused(tmkRegister(comm, nullptr, 1, &pointer), {"tmkRegister", "buffer is NULL"});
  refused(tmkRegister(comm, recv.data(), 0, &pointer), {"bytes=0"});
  refused(tmkRegister(comm, recv.data(), kHuge, &pointer), {"bytes=18446744073709551615"});
  refused(tmkRegister(comm, recv.data(), 1, nullptr), {"handle is NULL"});
  refused(tmkDeregister(comm, nullptr), {"tmkDeregister", "handle is NULL"});
  expect(tmkRegister(nullptr, recv.data(), 1, &pointer), tmkInvalidArgument, {"comm is NULL"}, false);
  expect(tmkDeregister(nullptr, recv.data()), tmkInvalidArgument, {"comm is NULL"}, false);
}

TEST_F(CApi, configIsReadByItsSize) {
  const auto made_with = [&](const tmkConfig_t* config) {
    tmkComm_t made = nullptr;
    EXPECT_EQ(tmkCommSplit(comm, 0, 0, &made, config), tmkSuccess) << tmkGetLastError(comm);
    CommunicatorConfig result = made == nullptr ? CommunicatorConfig{} : made->impl->config();
    EXPECT_EQ(tmkCommDestroy(made), tmkSuccess);
    return result;
  };
  EXPECT_EQ(made_with(nullptr).name, "dp") << "inherited";
  tmkConfig_t config = TMK_CONFIG_INIT;
  EXPECT_EQ(made_with(&config).timeout_ms, 30000);
  config.timeout_ms = 17;
  config.reproducible = 1;
  config.check = 0;
  config.transports = "tcp";
  config.algorithm = "ring";
  config.name = "tp";
  CommunicatorConfig read = made_with(&config);
  EXPECT_EQ(read.timeout_ms, 17);
  EXPECT_TRUE(read.reproducible);
  EXPECT_FALSE(read.check);
  EXPECT_EQ(read.transports, "tcp");
  EXPECT_EQ(read.algorithm, "ring");
  EXPECT_EQ(read.name, "tp");

  // An older caller, whose struct ended after timeout_ms: what lies behind it is not read.
  config.size = offsetof(tmkConfig_t, reproducible);
  config.version = 100;
  read = made_with(&config);
  EXPECT_EQ(read.timeout_ms, 17);
  EXPECT_FALSE(read.reproducible);
  EXPECT_EQ(read.name, "dp");

  // A newer one, with a field that this library does not know.
  struct Newer {
    tmkConfig_t known = TMK_CONFIG_INIT;
    int more = 3;
  } newer;
  newer.known.size = sizeof newer;
  newer.known.version = 10000;
  newer.known.timeout_ms = 18;
  EXPECT_EQ(made_with(&newer.known).timeout_ms, 18);

  tmkComm_t made = nullptr;
  const auto spoiled = [&](auto spoil, std::initializer_list<const char*> parts) {
    tmkConfig_t bad = TMK_CONFIG_INIT;
    spoil(bad);
    refused(tmkCommSplit(comm, 0, 0, &made, &bad), parts);
    expect(tmkCommInitEnv(&made, &bad), tmkInvalidArgument, parts, false);
  };
  spoiled([](tmkConfig_t& c) { c.size = 0; }, {"config->size=0", "TMK_CONFIG_INIT"});
  spoiled([](tmkConfig_t& c) { c.size = 1u << 30; }, {"config->size=1073741824"});
  spoiled([](tmkConfig_t& c) { c.version = 0; }, {"config->version=0"});
  spoiled([](tmkConfig_t& c) { c.timeout_ms = 0; }, {"config->timeout_ms=0"});
  spoiled([](tmkConfig_t& c) { c.timeout_ms = -2; }, {"config->timeout_ms=-2"});
  spoiled([](tmkConfig_t& c) { c.reproducible = 2; }, {"config->reproducible=2"});
  spoiled([](tmkConfig_t& c) { c.progress_thread = -2; }, {"config->progress_thread=-2"});
  spoiled([](tmkConfig_t& c) { c.check = 5; }, {"config->check=5"});
}

TEST_F(CApi, ranksSizesAbortAndHealth) {
  int number = -1;
  EXPECT_EQ(tmkCommRank(comm, &number), tmkSuccess);
  EXPECT_EQ(number, kRank);
  EXPECT_EQ(tmkCommSize(comm, &number), tmkSuccess);
  EXPECT_EQ(number, kRanks);
  tmkResult_t error = tmkInternalError;
  EXPECT_EQ(tmkCommGetAsyncError(comm, &error), tmkSuccess);
  EXPECT_EQ(error, tmkSuccess);
  EXPECT_EQ(tmkCommAbort(comm), tmkSuccess);
  ASSERT_TRUE(fake->aborted.has_value());
  EXPECT_EQ(fake->aborted->message, "communicator \"dp\" was aborted by its rank 2");
  fake->healthy = fail(Code::aborted, "communicator \"dp\" was aborted by its rank 2");
  EXPECT_EQ(tmkCommGetAsyncError(comm, &error), tmkSuccess);
  EXPECT_EQ(error, tmkAborted);
  EXPECT_NE(std::strstr(tmkGetLastError(comm), "aborted by its rank 2"), nullptr);
  fake->next = fail(Code::aborted, "would fail");
  EXPECT_EQ(tmkCommDestroy(comm), tmkSuccess) << "a failure that is known is not told again";
  comm = nullptr;
  tmkComm_t none = c::adopt(std::make_unique<FakeCommunicator>(0, 1));
  tmkComm_t child = none;
  EXPECT_EQ(tmkCommSplit(none, TMK_SPLIT_NOCOLOR, 0, &child, nullptr), tmkSuccess);
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(tmkCommDestroy(none), tmkSuccess);
  EXPECT_EQ(tmkCommDestroy(none), tmkInvalidArgument);
}

TEST_F(CApi, exceptionsStopAtTheEdge) {
  fake->throws = true;
  EXPECT_EQ(tmkBarrier(comm), tmkInternalError);
  EXPECT_STREQ(tmkGetLastError(comm), "tmkBarrier \"dp\": unexpected: thrown on purpose");
}

TEST_F(CApi, textsAreOfTheirThreadAndStayValid) {
  EXPECT_STREQ(tmkGetLastError(comm), "no error");
  EXPECT_EQ(tmkCommRank(comm, nullptr), tmkInvalidArgument);
  const char* first = tmkGetLastError(comm);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(tmkGetLastError(comm), first) << "the same text, not another copy";
  std::thread([&] {
    EXPECT_STREQ(tmkGetLastError(nullptr), "no error");
    EXPECT_STREQ(tmkGetLastError(comm), "tmkCommRank \"dp\": rank is NULL");
    EXPECT_EQ(tmkCommSize(comm, nullptr), tmkInvalidArgument);
  }).join();
  EXPECT_STREQ(first, "tmkCommRank \"dp\": rank is NULL");
  EXPECT_STREQ(tmkGetLastError(nullptr), "tmkCommRank \"dp\": rank is NULL");
  EXPECT_STREQ(tmkGetLastError(comm), "tmkCommSize \"dp\": size is NULL");
  tmkComm_t ended = c::adopt(std::make_unique<FakeCommunicator>(0, 1));
  c::retire(ended);
  EXPECT_NE(std::strstr(tmkGetLastError(ended), "not a communicator"), nullptr);
}

TEST(CApiFacts, everyCodeAndTypeHasItsText) {
  for (int code = 0; code <= tmkInternalError; ++code) {
    const char* text = tmkGetErrorString(static_cast<tmkResult_t>(code));
    EXPECT_STRNE(text, "unknown result code") << code;
    EXPECT_GT(std::strlen(text), 5u);
  }
  EXPECT_STREQ(tmkGetErrorString(static_cast<tmkResult_t>(77)), "unknown result code");
  const std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 8, 16, 1};
  for (int type = 0; type < tmkNumTypes; ++type)
    EXPECT_EQ(tmkSizeOf(static_cast<tmkDataType_t>(type)), sizes[type]);
  EXPECT_EQ(tmkSizeOf(kNoType), 0u);
  int version = 0;
  EXPECT_EQ(tmkGetVersion(&version), tmkSuccess);
  EXPECT_EQ(version, TMK_VERSION);
}

}  // namespace
}  // namespace tamaki::testing
