// The control plane with ranks as threads: joining, exchanges, news, order.

#include "unit/control_fixture.hpp"

namespace tamaki {
namespace {

using namespace control_test;

/// The caller's allgather between threads.
struct Callers {
  explicit Callers(int ranks) : barrier(ranks) {}
  std::barrier<> barrier;
  std::mutex mutex;
  std::vector<std::byte> board;
  struct One {
    Callers* all;
    int rank, ranks;
  };
  static int allgather(const void* mine, void* all, std::size_t bytes, void* context) {
    One& one = *static_cast<One*>(context);
    {
      const std::lock_guard lock(one.all->mutex);
      one.all->board.resize(bytes * static_cast<std::size_t>(one.ranks));
      std::memcpy(one.all->board.data() + bytes * static_cast<std::size_t>(one.rank), mine, bytes);
    }
    one.all->barrier.arrive_and_wait();
    std::memcpy(all, one.all->board.data(), bytes * static_cast<std::size_t>(one.ranks));
    one.all->barrier.arrive_and_wait();
    return 0;
  }
};

TEST(Control, JoinsByIdAndExchanges) {
  for (const int ranks : {1, 2, 3, 8, 9, 17, 30}) {
    const Result<UniqueId> id = make_unique_id();
    ASSERT_TRUE(id) << id.error().message;
    on_ranks(ranks, [&](int rank) {
      auto control = join_by_id(*id, rank, ranks, 20000);
      ASSERT_TRUE(control) << control.error().message;
      EXPECT_EQ((*control)->rank(), rank);
      EXPECT_EQ((*control)->ranks(), ranks);
      EXPECT_EQ((*control)->secret().size(), 32u);
      for (int i = 0; i < 5; ++i) check_exchange(**control, ranks, static_cast<std::size_t>(i * 40), i);
      check_exchange(**control, ranks, 50'000, 9);
    });
  }
}

TEST(Control, JoinsByCallbacks) {
  for (const int ranks : {1, 2, 8, 17}) {
    Callers callers(ranks);
    std::vector<Secret> secrets(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](int rank) {
      Callers::One one{&callers, rank, ranks};
      auto control = join_by_callbacks(rank, ranks, &Callers::allgather, &one, 20000);
      ASSERT_TRUE(control) << control.error().message;
      check_exchange(**control, ranks, 100, rank * 0);
      std::memcpy(secrets[static_cast<std::size_t>(rank)].data(), (*control)->secret().data(), 32);
    });
    for (const Secret& s : secrets)
      EXPECT_TRUE(ranks == 1 || s == secrets[0]);
  }
}

TEST(Control, CallbackThatFailsIsReported) {
  const auto broken = [](const void*, void*, std::size_t, void*) { return 42; };
  const auto control = join_by_callbacks(1, 2, broken, nullptr, 1000);
  ASSERT_FALSE(control);
  EXPECT_NE(control.error().message.find("42"), std::string::npos);
  EXPECT_FALSE(join_by_callbacks(0, 2, nullptr, nullptr, 1000));
}

TEST(Control, RefusesWrongPlacesAndIds) {
  UniqueId junk{};
  const auto damaged = join_by_id(junk, 0, 2, 1000);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, Code::invalid_argument);
  const Result<UniqueId> id = make_unique_id();
  for (const auto& [rank, ranks] : {std::pair(-1, 2), {2, 2}, {0, 0}, {0, -5}, {0, 1 << 25}}) {
    const auto control = join_by_id(*id, rank, ranks, 1000);
    ASSERT_FALSE(control);
    EXPECT_EQ(control.error().code, Code::invalid_argument) << control.error().message;
  }
  EXPECT_TRUE(join_by_id(*id, 0, 1, 10000));  // so that its rendezvous ends
}

TEST(Control, RankThatDoesNotArriveIsNamedOnAllOthers) {
  const Result<UniqueId> id = make_unique_id();
  on_ranks(9, [&](int rank) {
    if (rank == 3) return;
    const auto start = Clock::now();
    const auto control = join_by_id(*id, rank, 9, 1000);
    ASSERT_FALSE(control);
    EXPECT_EQ(control.error().code, Code::timeout);
    EXPECT_EQ(control.error().message, "rank 3 did not arrive within 1 s");
    EXPECT_LT(Clock::now() - start, 20s);
  });
  // Whoever comes too late hears of it at once.
  const auto late = join_by_id(*id, 3, 9, 20000);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "rank 3 did not arrive within 1 s");
}

TEST(Control, MissingRankWithCallbacksIsNamed) {
  // All take part in the caller's exchange; rank 2 (a leaf) or rank 1 (with children below it) then stays away.
  for (const int absent : {2, 1}) {
    Callers callers(12);
    std::atomic<int> named{0};
    on_ranks(12, [&](int rank) {
      Callers::One one{&callers, rank, 12};
      if (rank == absent) {
        std::vector<std::byte> mine(bootstrap::AddressSet::kBytes + 32), all(12 * mine.size());
        const Listener listener = std::move(*Listener::open(Address::loopback(AF_INET)));  // listens, never answers
        const auto encoded = listener.address().encode();
        std::memcpy(mine.data() + 32, encoded.data(), encoded.size());
        Callers::allgather(mine.data(), all.data(), mine.size(), &one);
        std::this_thread::sleep_for(1500ms);
        return;
      }
      const auto control = join_by_callbacks(rank, 12, &Callers::allgather, &one, 1500);
      ASSERT_FALSE(control);
      EXPECT_TRUE(control.error().code == Code::timeout || control.error().code == Code::peer_lost);
      if (control.error().message.find("rank " + std::to_string(absent)) != std::string::npos) ++named;
      EXPECT_NE(control.error().message.find("rank " + std::to_string(absent)), std::string::npos)
          << "rank " << rank << ": " << control.error().message;
    });
    EXPECT_EQ(named, 11);
  }
}

TEST(Control, DisagreementAboutTheSizeIsAnErrorOnAll) {
  const Result<UniqueId> id = make_unique_id();
  on_ranks(4, [&](int rank) {
    const auto control = join_by_id(*id, rank, rank == 2 ? 5 : 4, 10000);
    ASSERT_FALSE(control);
    EXPECT_EQ(control.error().code, Code::mismatch) << control.error().message;
  });
}

TEST(Control, TwoProcessesOfOneRankAreAnErrorOnAll) {
  const Result<UniqueId> id = make_unique_id();
  on_ranks(4, [&](int rank) {
    const auto control = join_by_id(*id, rank == 3 ? 1 : rank, 4, 10000);
    ASSERT_FALSE(control);
    EXPECT_EQ(control.error().code, Code::mismatch) << control.error().message;
    EXPECT_NE(control.error().message.find("rank 1"), std::string::npos) << control.error().message;
  });
}

TEST(Control, WrongSecretGetsNowhereAndHarmsNobody) {
  const Result<UniqueId> id = make_unique_id();
  UniqueId other = *make_unique_id();
  // The right address with another job's secret, correctly summed.
  Secret wrong = random_secret();
  UniqueId forged = *id;
  std::memcpy(forged.bytes + 4, wrong.data(), wrong.size());
  const std::uint64_t sum =
      digest_of(std::string_view(reinterpret_cast<const char*>(forged.bytes), 4 + 32 + bootstrap::AddressSet::kBytes));
  std::memcpy(forged.bytes + 4 + 32 + bootstrap::AddressSet::kBytes, &sum, sizeof sum);
  std::thread stranger([&] {
    const auto control = join_by_id(forged, 1, 4, 700);
    ASSERT_FALSE(control);
    EXPECT_NE(control.error().message.find("secret"), std::string::npos) << control.error().message;
  });
  std::this_thread::sleep_for(100ms);
  on_ranks(4, [&](int rank) {
    auto control = join_by_id(*id, rank, 4, 20000);
    ASSERT_TRUE(control) << control.error().message;
    check_exchange(**control, 4, 32, 1);
  });
  stranger.join();
  on_ranks(2, [&](int rank) { EXPECT_TRUE(join_by_id(other, rank, 2, 20000)); });  // so that it ends
}

TEST(Control, ExchangeOfDifferentSizesIsAMismatchOnAll) {
  const Result<UniqueId> id = make_unique_id();
  on_ranks(11, [&](int rank) {
    auto control = join_by_id(*id, rank, 11, 10000);
    ASSERT_TRUE(control);
    const std::size_t bytes = rank == 10 ? 24 : 16;
    std::vector<std::byte> mine(bytes), all(bytes * 11);
    const Status status = (*control)->allgather(mine, all);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::mismatch) << status.error().message;
    EXPECT_FALSE((*control)->allgather(mine, std::span(all).first(1)));
  });
}

TEST(Control, RankThatDoesNotTakePartInAnExchangeIsNamed) {
  const Result<UniqueId> id = make_unique_id();
  std::barrier end(11);
  on_ranks(11, [&](int rank) {
    auto control = join_by_id(*id, rank, 11, 1500);
    ASSERT_TRUE(control) << control.error().message;
    if (rank != 9) {
      std::vector<std::byte> mine(8), all(88);
      const Status status = (*control)->allgather(mine, all);
      EXPECT_FALSE(status);
      if (!status) {
        EXPECT_EQ(status.error().code, Code::timeout);
        EXPECT_EQ(status.error().message, "rank 9 did not take part in exchange 1 within 1.5 s");
      }
    }
    end.arrive_and_wait();
  });
}

TEST(Control, AnnouncementsReachEveryOtherRankOnce) {
  constexpr int kRanks = 17;
  const Result<UniqueId> id = make_unique_id();
  std::barrier step(kRanks);
  on_ranks(kRanks, [&](int rank) {
    Heard heard;
    auto control = join_by_id(*id, rank, kRanks, 20000);
    ASSERT_TRUE(control);
    (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
    step.arrive_and_wait();
    if (rank == 16 || rank == 5)
      (*control)->announce(static_cast<std::uint64_t>(100 + rank),
                           {Code::aborted, rank, "rank " + std::to_string(rank) + " aborted"});
    const std::size_t expected = rank == 16 || rank == 5 ? 1 : 2;
    EXPECT_TRUE(heard.wait(expected)) << rank;
    step.arrive_and_wait();
    check_exchange(**control, kRanks, 8, 1);  // a communicator's failure leaves the job alone
    {
      const std::lock_guard lock(heard.mutex);
      EXPECT_EQ(heard.all.size(), expected);
      for (const auto& [c, f] : heard.all) {
        EXPECT_EQ(c, static_cast<std::uint64_t>(100 + f.rank));
        EXPECT_EQ(f.code, Code::aborted);
        EXPECT_EQ(f.message, "rank " + std::to_string(f.rank) + " aborted");
      }
    }
    step.arrive_and_wait();
    (*control)->listen(nullptr);
  });
}

TEST(Control, ListenerHearsWhatHappenedBefore) {
  const Result<UniqueId> id = make_unique_id();
  std::barrier step(2);
  on_ranks(2, [&](int rank) {
    Heard heard;
    auto control = join_by_id(*id, rank, 2, 20000);
    ASSERT_TRUE(control);
    if (rank == 0) (*control)->announce(7, {Code::mismatch, 0, "early"});
    if (rank == 0) (*control)->announce(0, {Code::aborted, 0, "end"});
    std::vector<std::byte> all(2);
    if (rank == 1) {
      EXPECT_FALSE((*control)->allgather(std::span(all).first(1), all));  // ends by the second
    }
    step.arrive_and_wait();
    if (rank == 1) {
      (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
      EXPECT_TRUE(heard.wait(2));
      EXPECT_EQ(heard.all[0].second.message, "early");
      EXPECT_EQ(heard.all[1].second.message, "end");
      (*control)->listen(nullptr);
    }
    step.arrive_and_wait();
  });
}

TEST(Control, LeavingInOrderIsNoFailureAndTheTreeHeals) {
  // Interior ranks and the root leave; those below them attach to their kin, and news still reach everybody.
  constexpr int kRanks = 30;
  for (const std::vector<int>& leavers : {std::vector<int>{1}, {0}, {0, 1, 2}, {2, 0, 1, 3}}) {
    const Result<UniqueId> id = make_unique_id();
    std::barrier step(kRanks);
    on_ranks(kRanks, [&](int rank) {
      Heard heard;
      auto control = join_by_id(*id, rank, kRanks, 20000);
      ASSERT_TRUE(control) << control.error().message;
      (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
      step.arrive_and_wait();
      const bool leaves = std::ranges::find(leavers, rank) != leavers.end();
      if (leaves) control->reset();
      step.arrive_and_wait();
      if (rank == 29) (*control)->announce(5, {Code::peer_lost, 29, "news from 29"});
      if (rank == 10) (*control)->announce(6, {Code::peer_lost, 10, "news from 10"});
      EXPECT_TRUE(leaves || heard.wait(rank == 29 || rank == 10 ? 1 : 2)) << "rank " << rank;
      step.arrive_and_wait();
      const std::lock_guard lock(heard.mutex);
      for (const auto& [c, f] : heard.all) EXPECT_NE(c, 0u) << f.message;  // nobody was taken for dead
    });
  }
}

TEST(Control, DescribesRanks) {
  const Result<UniqueId> id = make_unique_id();
  on_ranks(2, [&](int rank) {
    auto control = join_by_id(*id, rank, 2, 20000);
    ASSERT_TRUE(control);
    EXPECT_EQ((*control)->describe(1), "rank 1");
    std::vector<RankIdentity> all(2);
    const RankIdentity self = own_identity();
    ASSERT_TRUE((*control)->allgather(std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(all))));
    (*control)->set_identities(all);
    EXPECT_EQ((*control)->describe(1),
              "rank 1 (host " + std::string(self.host_name) + ", pid " + std::to_string(::getpid()) + ")");
  });
}

TEST(Control, ThousandCyclesLeaveNothingBehind) {
  const auto cycle = [] {
    const Result<UniqueId> id = make_unique_id();
    ASSERT_TRUE(id) << id.error().message;
    on_ranks(3, [&](int rank) { ASSERT_TRUE(join_by_id(*id, rank, 3, 20000)); });
  };
  for (int i = 0; i < 20; ++i) cycle();
  const auto settled = [](int (*count)(), int target) {  // a rendezvous ends just after its last rank
    for (int i = 0; i < 500 && count() > target; ++i) std::this_thread::sleep_for(10ms);
    return count();
  };
  const int threads = settled(&threads_now, 1);
  bootstrap::forget_ended_rendezvous();
  const int open = descriptors();
  for (int i = 0; i < 80; ++i) cycle();
  const long before_kib = resident_kib();
  for (int i = 0; i < 1000; ++i) cycle();
  EXPECT_LT(resident_kib() - before_kib, 4096 * kSanitizerFactor);
  EXPECT_EQ(settled(&threads_now, threads), threads);
  bootstrap::forget_ended_rendezvous();
  EXPECT_EQ(settled(&descriptors, open), open);
}

TEST(Control, ManyJobsAtOnceInAnyOrder) {
  constexpr int kJobs = 6, kRanks = 5;
  std::vector<UniqueId> ids;
  for (int j = 0; j < kJobs; ++j) ids.push_back(*make_unique_id());
  on_ranks(kJobs * kRanks, [&](int at) {
    const int job = at % kJobs, rank = at / kJobs;
    auto control = join_by_id(ids[static_cast<std::size_t>(job)], rank, kRanks, 20000);
    ASSERT_TRUE(control) << control.error().message;
    for (int i = 0; i < 3; ++i) check_exchange(**control, kRanks, 16, job + i);
  });
}

// ---- Identity ---------------------------------------------------------------------------------------------------

TEST(Identity, IsStableInAProcessAndDiffersBetweenProcesses) {
  const RankIdentity a = own_identity(), b = own_identity();
  EXPECT_EQ(a.host, b.host);
  EXPECT_EQ(a.address_space, b.address_space);
  EXPECT_EQ(a.pid, ::getpid());
  EXPECT_GE(a.cores, 1);
  EXPECT_LE(a.cores, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GT(std::strlen(a.host_name), 0u);
  Processes child(1, [&](int) -> std::string {
    const RankIdentity c = own_identity();
    return std::string(c.host == a.host ? "same host" : "other host") + (c.address_space == a.address_space ? " same" : " new");
  });
  EXPECT_EQ(child.report(0), "same host new\n");
}

}  // namespace
}  // namespace tamaki
