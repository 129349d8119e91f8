// The C and C++ interfaces between real ranks (threads that meet by a unique id): every operation out of
// place and in place, blocking, by request and in a group, against results worked out by hand.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tamaki/tamaki.hpp"

namespace {

using Ints = std::vector<std::int32_t>;
using Counts = std::vector<std::size_t>;

/// body(communicator) on every rank, each a thread.
void on_ranks(int ranks, const std::function<void(const tmk::Communicator&)>& body) {
  const tmkUniqueId id = tmk::make_unique_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        tmk::Communicator comm =
            tmk::Communicator::from_id(id, ranks, rank, {.timeout = std::chrono::seconds(60)});
        body(comm);
        comm.close();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// Element i of what `rank` has for block `block`.
std::int32_t value(int rank, int block, std::size_t i) {
  return 10000 * rank + 100 * block + static_cast<std::int32_t>(i);
}
Ints block_of(int rank, int block, std::size_t count) {
  Ints v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, block, i);
  return v;
}
Ints joined(const std::vector<Ints>& parts) {
  Ints all;
  for (const Ints& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

enum class Mode { blocking, requests, group };

/// One operation: its buffers, how it is called, and what `recv` must then hold.
struct Step {
  std::string name;
  Ints send, recv, expected;
  std::function<tmkResult_t(Step&)> call;
  std::function<tmkResult_t(Step&, tmkRequest_t*)> start;
};

/// Every operation of one rank. Buffers must not move: hence a deque.
class Script {
 public:
  Script(const tmk::Communicator& comm, int root_rank)
      : c(comm.get()), p(comm.size()), r(comm.rank()), root(root_rank) {
    for (int i = 0; i < p; ++i) counts.push_back(static_cast<std::size_t>(i % 3) * 2);  // some are zero
    reductions();
    movements();
    uneven();
    messages();
  }
  std::deque<Step> steps;

 private:
  tmkComm_t c;
  int p, r, root;
  Counts counts;                           // of the uneven forms, by rank
  std::vector<Counts> to = {}, from = {};  // of alltoallv
  static constexpr std::size_t n = 5;

  Ints sum(int block, std::size_t count) const {
    Ints total(count);
    for (int rank = 0; rank < p; ++rank)
      for (std::size_t i = 0; i < count; ++i) total[i] += value(rank, block, i);
    return total;
  }
  Ints blocks(int rank, const std::function<std::size_t(int)>& count) const {
    std::vector<Ints> parts;
    for (int b = 0; b < p; ++b) parts.push_back(block_of(rank, b, count(b)));
    return joined(parts);
  }
  Ints every_rank(int block, const std::function<std::size_t(int)>& count) const {
    std::vector<Ints> parts;
    for (int rank = 0; rank < p; ++rank) parts.push_back(block_of(rank, block, count(rank)));
    return joined(parts);
  }
  static std::size_t even(int) { return n; }
  Ints when(bool condition, Ints value) const { return condition ? value : Ints(value.size(), -1); }
  template <class Call, class Start>
  void add(const char* name, Ints send, Ints recv, Ints expected, Call call, Start start) {
    steps.push_back({name, std::move(send), std::move(recv), std::move(expected), call, start});
  }

  void reductions() {
    const Ints mine = block_of(r, 0, n), empty(n, -1), result = sum(0, n);
    add(
        "allreduce", mine, empty, result,
        [this](Step& s) { return tmkAllreduce(s.send.data(), s.recv.data(), n, tmkInt32, tmkSum, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIallreduce(s.send.data(), s.recv.data(), n, tmkInt32, tmkSum, c, q);
        });
    add(
        "allreduce in place", {}, mine, result,
        [this](Step& s) { return tmkAllreduce(TMK_IN_PLACE, s.recv.data(), n, tmkInt32, tmkSum, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIallreduce(s.recv.data(), s.recv.data(), n, tmkInt32, tmkSum, c, q);
        });
    add(
        "reduce", mine, empty, when(r == root, result),
        [this](Step& s) { return tmkReduce(s.send.data(), s.recv.data(), n, tmkInt32, tmkSum, root, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIreduce(s.send.data(), r == root ? s.recv.data() : nullptr, n, tmkInt32, tmkSum, root,
                            c, q);
        });
    add(
        "reduce in place", mine, mine, r == root ? result : mine,
        [this](Step& s) {
          return tmkReduce(r == root ? TMK_IN_PLACE : s.send.data(), s.recv.data(), n, tmkInt32, tmkSum,
                           root, c);
        },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIreduce(r == root ? TMK_IN_PLACE : s.send.data(), s.recv.data(), n, tmkInt32, tmkSum,
                            root, c, q);
        });
    add(
        "reduce_scatter", blocks(r, even), empty, sum(r, n),
        [this](Step& s) { return tmkReduceScatter(s.send.data(), s.recv.data(), n, tmkInt32, tmkSum, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIreduceScatter(s.send.data(), s.recv.data(), n, tmkInt32, tmkSum, c, q);
        });
    const auto own = [this](Step& s) { return s.recv.data() + static_cast<std::size_t>(r) * n; };
    Ints in_place = blocks(r, even);
    Ints reduced = in_place;  // only the own block is the result's
    const Ints own_sum = sum(r, n);
    std::copy(own_sum.begin(), own_sum.end(), reduced.begin() + r * static_cast<std::ptrdiff_t>(n));
    add(
        "reduce_scatter in place", {}, in_place, reduced,
        [this, own](Step& s) { return tmkReduceScatter(TMK_IN_PLACE, own(s), n, tmkInt32, tmkSum, c); },
        [this, own](Step& s, tmkRequest_t* q) {
          return tmkIreduceScatter(s.recv.data(), own(s), n, tmkInt32, tmkSum, c, q);
        });
    steps.back().name += " (own block)";
  }

  void movements() {
    const Ints mine = block_of(r, 0, n), empty(n, -1), all_empty(n * static_cast<std::size_t>(p), -1);
    const Ints gathered = every_rank(0, even);
    add(
        "broadcast", mine, empty, block_of(root, 0, n),
        [this](Step& s) {
          return tmkBroadcast(r == root ? s.send.data() : nullptr, s.recv.data(), n, tmkInt32, root, c);
        },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIbroadcast(s.send.data(), s.recv.data(), n, tmkInt32, root, c, q);
        });
    add(
        "broadcast in place", {}, mine, block_of(root, 0, n),
        [this](Step& s) { return tmkBroadcast(s.recv.data(), s.recv.data(), n, tmkInt32, root, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIbroadcast(TMK_IN_PLACE, s.recv.data(), n, tmkInt32, root, c, q);
        });
    add(
        "allgather", mine, all_empty, gathered,
        [this](Step& s) { return tmkAllgather(s.send.data(), s.recv.data(), n, tmkInt32, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIallgather(s.send.data(), s.recv.data(), n, tmkInt32, c, q);
        });
    Ints placed = all_empty;
    std::copy(mine.begin(), mine.end(), placed.begin() + r * static_cast<std::ptrdiff_t>(n));
    add(
        "allgather in place", {}, placed, gathered,
        [this](Step& s) { return tmkAllgather(TMK_IN_PLACE, s.recv.data(), n, tmkInt32, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIallgather(TMK_IN_PLACE, s.recv.data(), n, tmkInt32, c, q);
        });
    add(
        "gather", mine, all_empty, when(r == root, gathered),
        [this](Step& s) { return tmkGather(s.send.data(), s.recv.data(), n, tmkInt32, root, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIgather(s.send.data(), s.recv.data(), n, tmkInt32, root, c, q);
        });
    add(
        "gather in place", mine, placed, r == root ? gathered : placed,
        [this](Step& s) {
          return tmkGather(r == root ? TMK_IN_PLACE : s.send.data(), s.recv.data(), n, tmkInt32, root, c);
        },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIgather(r == root ? TMK_IN_PLACE : s.send.data(), s.recv.data(), n, tmkInt32, root, c,
                            q);
        });
    add(
        "scatter", blocks(r, even), empty, block_of(root, r, n),
        [this](Step& s) {
          return tmkScatter(r == root ? s.send.data() : nullptr, s.recv.data(), n, tmkInt32, root, c);
        },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIscatter(s.send.data(), s.recv.data(), n, tmkInt32, root, c, q);
        });
    add(
        "alltoall", blocks(r, even), all_empty, every_rank(r, even),
        [this](Step& s) { return tmkAlltoall(s.send.data(), s.recv.data(), n, tmkInt32, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIalltoall(s.send.data(), s.recv.data(), n, tmkInt32, c, q);
        });
    add(
        "alltoall in place", {}, blocks(r, even), every_rank(r, even),
        [this](Step& s) { return tmkAlltoall(TMK_IN_PLACE, s.recv.data(), n, tmkInt32, c); },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIalltoall(s.recv.data(), s.recv.data(), n, tmkInt32, c, q);
        });
    add(
        "barrier", {}, {}, {}, [this](Step&) { return tmkBarrier(c); },
        [this](Step&, tmkRequest_t* q) { return tmkIbarrier(c, q); });
  }

  void uneven() {
    const auto count = [this](int rank) { return counts[static_cast<std::size_t>(rank)]; };
    const std::size_t own = count(r), total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const Ints mine = block_of(r, 0, own), empty(total, -1), gathered = every_rank(0, count);
    const std::size_t* k = counts.data();
    add(
        "allgatherv", mine, empty, gathered,
        [this, k](Step& s) { return tmkAllgatherv(s.send.data(), s.recv.data(), k, nullptr, tmkInt32, c); },
        [this, k](Step& s, tmkRequest_t* q) {
          return tmkIallgatherv(s.send.data(), s.recv.data(), k, nullptr, tmkInt32, c, q);
        });
    add(
        "gatherv", mine, empty, when(r == root, gathered),
        [this, k, own](Step& s) {
          return tmkGatherv(s.send.data(), own, s.recv.data(), k, nullptr, tmkInt32, root, c);
        },
        [this, k, own](Step& s, tmkRequest_t* q) {
          return tmkIgatherv(s.send.data(), own, s.recv.data(), r == root ? k : nullptr, nullptr, tmkInt32,
                             root, c, q);
        });
    add(
        "scatterv", blocks(r, count), Ints(own, -1), block_of(root, r, own),
        [this, k, own](Step& s) {
          return tmkScatterv(s.send.data(), k, nullptr, s.recv.data(), own, tmkInt32, root, c);
        },
        [this, k, own](Step& s, tmkRequest_t* q) {
          return tmkIscatterv(s.send.data(), r == root ? k : nullptr, nullptr, s.recv.data(), own, tmkInt32,
                              root, c, q);
        });
    add(
        "reduce_scatterv", blocks(r, count), Ints(own, -1), sum(r, own),
        [this, k](Step& s) {
          return tmkReduceScatterv(s.send.data(), s.recv.data(), k, tmkInt32, tmkSum, c);
        },
        [this, k](Step& s, tmkRequest_t* q) {
          return tmkIreduceScatterv(s.send.data(), s.recv.data(), k, tmkInt32, tmkSum, c, q);
        });
    // In place: the own block lies where the packed form puts it.
    const auto offset = std::accumulate(counts.begin(), counts.begin() + r, std::ptrdiff_t{0});
    Ints placed = empty;
    std::copy(mine.begin(), mine.end(), placed.begin() + offset);
    add(
        "allgatherv in place", {}, placed, gathered,
        [this, k](Step& s) { return tmkAllgatherv(TMK_IN_PLACE, s.recv.data(), k, nullptr, tmkInt32, c); },
        [this, k, offset](Step& s, tmkRequest_t* q) {
          return tmkIallgatherv(s.recv.data() + offset, s.recv.data(), k, nullptr, tmkInt32, c, q);
        });
    add(
        "gatherv in place", mine, placed, r == root ? gathered : placed,
        [this, k, own](Step& s) {
          return tmkGatherv(r == root ? TMK_IN_PLACE : s.send.data(), own, s.recv.data(), k, nullptr,
                            tmkInt32, root, c);
        },
        [this, k, own, offset](Step& s, tmkRequest_t* q) {
          return tmkIgatherv(r == root ? s.recv.data() + offset : s.send.data(), own, s.recv.data(), k,
                             nullptr, tmkInt32, root, c, q);
        });
    // The root's whole buffer stays as it is; other ranks receive at its beginning.
    Ints scattered = blocks(r, count);
    if (r != root) {
      const Ints got = block_of(root, r, own);
      std::copy(got.begin(), got.end(), scattered.begin());
    }
    add(
        "scatterv in place", {}, blocks(r, count), scattered,
        [this, k, own, offset](Step& s) {
          return tmkScatterv(TMK_IN_PLACE, k, nullptr, s.recv.data() + (r == root ? offset : 0), own,
                             tmkInt32, root, c);
        },
        [this, k, own, offset](Step& s, tmkRequest_t* q) {
          return tmkIscatterv(s.recv.data(), k, nullptr, s.recv.data() + (r == root ? offset : 0), own,
                              tmkInt32, root, c, q);
        });
    // Rank a sends (a + 2b) % 4 elements to rank b.
    Counts out, in;
    std::vector<Ints> sent, got;
    for (int b = 0; b < p; ++b) {
      out.push_back(static_cast<std::size_t>((r + 2 * b) % 4));
      in.push_back(static_cast<std::size_t>((b + 2 * r) % 4));
      sent.push_back(block_of(r, b, out.back()));
      got.push_back(block_of(b, r, in.back()));
    }
    to.push_back(out);
    from.push_back(in);
    add(
        "alltoallv", joined(sent), Ints(joined(got).size(), -1), joined(got),
        [this](Step& s) {
          return tmkAlltoallv(s.send.data(), to[0].data(), nullptr, s.recv.data(), from[0].data(), nullptr,
                              tmkInt32, c);
        },
        [this](Step& s, tmkRequest_t* q) {
          return tmkIalltoallv(s.send.data(), to[0].data(), nullptr, s.recv.data(), from[0].data(), nullptr,
                               tmkInt32, c, q);
        });
  }

  void messages() {
    const int right = (r + 1) % p, left = (r + p - 1) % p;
    add(
        "sendrecv", block_of(r, 7, n), Ints(n, -1), block_of(left, 7, n),
        [this, right, left](Step& s) {
          return tmkSendrecv(s.send.data(), n, right, s.recv.data(), n, left, tmkInt32, c);
        },
        [this, right, left](Step& s, tmkRequest_t* q) {
          if (const tmkResult_t sent = tmkIsend(s.send.data(), n, tmkInt32, right, c, &side);
              sent != tmkSuccess)
            return sent;
          return tmkIrecv(s.recv.data(), n, tmkInt32, left, c, q);
        });
  }

 public:
  tmkRequest_t side = nullptr;  // of the send beside the receive
};

void play(const tmk::Communicator& comm, int root, Mode mode) {
  Script script(comm, root);
  std::vector<tmkRequest_t> requests(script.steps.size());
  if (mode == Mode::group) tmk::check(tmkGroupStart());
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    Step& s = script.steps[i];
    const tmkResult_t result = mode == Mode::requests ? s.start(s, &requests[i]) : s.call(s);
    ASSERT_EQ(result, tmkSuccess) << s.name << ": " << tmkGetLastError(comm.get());
  }
  if (mode == Mode::group) tmk::check(tmkGroupEnd());
  if (mode == Mode::requests) {
    tmk::check(tmkWaitAll(static_cast<int>(requests.size()), requests.data()));
    tmk::check(tmkWait(&script.side));
  }
  for (const Step& s : script.steps) {
    if (s.name ==
        "reduce_scatter in place (own block)") {  // what is left in the other blocks is not promised
      const auto n = s.recv.size() / static_cast<std::size_t>(comm.size());
      const auto begin = static_cast<std::ptrdiff_t>(n) * comm.rank(),
                 end = begin + static_cast<std::ptrdiff_t>(n);
      EXPECT_TRUE(std::equal(s.recv.begin() + begin, s.recv.begin() + end, s.expected.begin() + begin))
          << s.name;
    } else {
      EXPECT_EQ(s.recv, s.expected) << s.name << ", rank " << comm.rank() << ", root " << root << ", mode "
                                    << static_cast<int>(mode);
    }
  }
}

class CRanks : public ::testing::TestWithParam<int> {};

TEST_P(CRanks, everyOperationInEveryMode) {
  on_ranks(GetParam(), [](const tmk::Communicator& comm) {
    for (const Mode mode : {Mode::blocking, Mode::requests, Mode::group}) {
      play(comm, 0, mode);
      play(comm, comm.size() - 1, mode);
    }
  });
}

TEST_P(CRanks, childrenWorkAsTheirParentsDo) {
  on_ranks(GetParam(), [](const tmk::Communicator& comm) {
    const tmk::Communicator twin = comm.duplicate();
    play(twin, 0, Mode::requests);
    // Odd and even ranks, in descending order; the last rank stays out.
    const bool out = comm.size() > 1 && comm.rank() == comm.size() - 1;
    const tmk::Communicator half =
        comm.split(out ? std::nullopt : std::optional(comm.rank() % 2), -comm.rank());
    ASSERT_EQ(static_cast<bool>(half), !out);
    if (out) return;
    std::vector<int> rank(1, comm.rank()), ranks(static_cast<std::size_t>(half.size()));
    half.allgather(rank, ranks);
    EXPECT_TRUE(std::is_sorted(ranks.rbegin(), ranks.rend()));
    EXPECT_EQ(ranks[static_cast<std::size_t>(half.rank())], comm.rank());
    play(half, 0, Mode::group);
  });
}

TEST_P(CRanks, requestsOfSeveralCommunicatorsCompleteInAnyOrder) {
  on_ranks(GetParam(), [](const tmk::Communicator& one) {
    const tmk::Communicator two = one.duplicate();
    std::vector<float> a(1000, 1), b(1000, 2);
    std::vector<tmk::Request> requests;
    const bool odd = one.rank() % 2 == 1;  // ranks wait in different orders
    requests.push_back(odd ? two.iallreduce(b) : one.iallreduce(a));
    requests.push_back(odd ? one.iallreduce(a) : two.iallreduce(b));
    tmk::wait_all(requests);
    EXPECT_EQ(a.back(), static_cast<float>(one.size()));
    EXPECT_EQ(b.back(), static_cast<float>(2 * one.size()));
    requests[0] = one.iallreduce(a);
    requests[1] = two.ibarrier();
    const int first = tmk::wait_any(requests);
    ASSERT_TRUE(first == 0 || first == 1);
    EXPECT_EQ(tmk::wait_any(requests), 1 - first);
    EXPECT_EQ(tmk::wait_any(requests), -1);
  });
}

TEST_P(CRanks, operationsOfTheUser) {
  on_ranks(GetParam(), [](const tmk::Communicator& comm) {
    const int p = comm.size();
    std::vector<double> v(37, comm.rank());
    comm.allreduce(v, comm.pre_mul_sum(0.5));
    EXPECT_DOUBLE_EQ(v[36], p * (p - 1) / 4.0);
    // Not commutative: the operand of the highest rank stays.
    const auto latest = comm.make_operation<int>([](int, int upper) noexcept { return upper; },
                                                 tmk::Communicator::Order::by_rank);
    std::vector<int> w(9, comm.rank());
    comm.allreduce(w, latest);
    EXPECT_EQ(w, std::vector<int>(9, p - 1));
  });
}

TEST_P(CRanks, sharedAndRegisteredMemory) {
  on_ranks(GetParam(), [](const tmk::Communicator& comm) {
    tmk::SharedBuffer<float> send(10000), recv(10000);
    EXPECT_EQ(recv[9999], 0.0f);
    std::fill(send.begin(), send.end(), static_cast<float>(comm.rank() + 1));
    comm.allreduce(send, recv);
    EXPECT_EQ(recv[9999], static_cast<float>(comm.size() * (comm.size() + 1) / 2));
    std::vector<float> plain(5000, 1);
    const tmk::Registration kept = comm.register_memory(plain);
    comm.allreduce(plain);
    EXPECT_EQ(plain[4999], static_cast<float>(comm.size()));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CRanks, ::testing::Values(1, 2, 3, 5));

}  // namespace
