// The control plane with ranks as threads and as forked processes that are killed at any moment.

#include "communicator/control.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "base/secret.hpp"
#include "base/socket.hpp"
#include "communicator/bootstrap/join.hpp"

namespace tamaki {
namespace {

using namespace std::chrono_literals;

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#elif __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr long kSanitizerFactor = 20;  // their own records of what was freed
constexpr int kSlow = 4;
#else
constexpr long kSanitizerFactor = 1;
constexpr int kSlow = 1;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif
#define NEEDS_FORK() \
  if (!kForks) GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked process"

template <class Function>
void on_ranks(int ranks, Function function) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([=] { function(r); });
  for (std::thread& t : threads) t.join();
}

int count_in(const char* folder) {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}
long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}
int descriptors() { return count_in("/proc/self/fd"); }
int threads_now() { return count_in("/proc/self/task"); }

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

void check_exchange(Control& control, int ranks, std::size_t bytes, int salt) {
  const int rank = control.rank();
  const auto value = [&](int r, std::size_t i) { return static_cast<std::byte>(r * 7 + salt * 13 + static_cast<int>(i)); };
  std::vector<std::byte> mine(bytes), all(bytes * static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = value(rank, i);
  const Status status = control.allgather(mine, all);
  ASSERT_TRUE(status) << status.error().message;
  std::vector<std::byte> expected;
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < bytes; ++i) expected.push_back(value(r, i));
  ASSERT_TRUE(all == expected) << ranks << " ranks, " << bytes << " bytes";
}

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

/// What a listener heard.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<std::uint64_t, Failure>> all;
  void add(std::uint64_t communicator, const Failure& f) {
    const std::lock_guard lock(mutex);
    all.emplace_back(communicator, f);
    changed.notify_all();
  }
  bool wait(std::size_t n, std::chrono::milliseconds most = 10000ms) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, most, [&] { return all.size() >= n; });
  }
};

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

// ---- Junk -------------------------------------------------------------------------------------------------------

std::vector<Address> addresses_in(const UniqueId& id) {
  return bootstrap::AddressSet::decode(std::span(id.bytes).subspan(4 + 32, bootstrap::AddressSet::kBytes)).addresses;
}

TEST(ControlJunk, StrangersFloodsAndHalfOpenConnectionsDoNoHarm) {
  constexpr int kRanks = 8;
  const int open = descriptors();
  const Result<UniqueId> id = make_unique_id();
  const Address target = addresses_in(*id)[0];
  std::vector<Socket> silent;  // held open, never a byte
  for (int i = 0; i < 40; ++i) silent.push_back(std::move(*Socket::connect(target, deadline_in(5000))));
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0};
  std::vector<std::thread> attackers;
  for (int kind = 0; kind < 4; ++kind)
    attackers.emplace_back([&, kind] {
      std::mt19937_64 random(static_cast<unsigned>(kind));
      while (!stop) {
        Result<Socket> s = Socket::connect(target, deadline_in(1000));
        if (!s) continue;
        std::vector<std::byte> junk(kind == 0 ? 5000 : kind == 1 ? 60 : 1);
        for (std::byte& b : junk) b = static_cast<std::byte>(random());
        if (kind == 2) std::memcpy(junk.data(), "G", 1);
        if (kind == 1) std::memcpy(junk.data(), "TMKHAND1", 8);  // the right beginning, then silence
        if (kind != 3) (void)s->send(junk, deadline_in(1000));
        ++sent;
      }
    });
  on_ranks(kRanks, [&](int rank) {
    if (rank == 5)
      while (sent < 300) std::this_thread::sleep_for(1ms);  // the job starts in the middle of it
    auto control = join_by_id(*id, rank, kRanks, 30000);
    ASSERT_TRUE(control) << control.error().message;
    check_exchange(**control, kRanks, 64, 3);
  });
  stop = true;
  for (std::thread& t : attackers) t.join();
  silent.clear();
  for (int i = 0; i < 500 && descriptors() > open; ++i) {
    bootstrap::forget_ended_rendezvous();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(descriptors(), open);
}

TEST(ControlJunk, SilentConnectionsAreBoundedAndDropped) {
  const Result<UniqueId> id = make_unique_id();
  const Address target = addresses_in(*id)[0];
  const int before = descriptors();
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) {
    Result<Socket> s = Socket::connect(target, deadline_in(5000));
    ASSERT_TRUE(s) << s.error().message;
    silent.push_back(std::move(*s));
  }
  // Held at the other end: no more than the bound. The oldest have been closed.
  std::byte byte;
  const Status oldest = silent[0].receive({&byte, 1}, deadline_in(5000));
  ASSERT_FALSE(oldest);
  EXPECT_EQ(oldest.error().code, Code::peer_lost);
  EXPECT_LE(descriptors() - before, 300 + static_cast<int>(bootstrap::Endpoint::kMostUnproven) + 8);
  // The newest are closed when their time to prove themselves is over, without a byte of an answer.
  const Status newest = silent.back().receive({&byte, 1}, deadline_in(20000));
  ASSERT_FALSE(newest);
  EXPECT_EQ(newest.error().code, Code::peer_lost);
  on_ranks(2, [&](int rank) { EXPECT_TRUE(join_by_id(*id, rank, 2, 20000)); });
}

TEST(ControlJunk, RunningOutOfDescriptorsIsBorneAndOver) {
  const Result<UniqueId> id = make_unique_id();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit tight{static_cast<rlim_t>(descriptors() + 12), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<Socket> hold;
  for (int i = 0; i < 30; ++i) {
    Result<Socket> s = Socket::connect(addresses_in(*id)[0], deadline_in(200));
    if (!s) break;
    hold.push_back(std::move(*s));
  }
  std::this_thread::sleep_for(120ms);
  hold.clear();
  ::setrlimit(RLIMIT_NOFILE, &limit);
  on_ranks(3, [&](int rank) {
    const auto control = join_by_id(*id, rank, 3, 20000);
    EXPECT_TRUE(control) << control.error().message;
  });
}

// ---- Death ------------------------------------------------------------------------------------------------------

/// Ranks as processes. Each child runs `body(rank)` and reports one line; killed ones report nothing.
struct Processes {
  std::vector<pid_t> pids;
  std::vector<FileDescriptor> reports;

  template <class Body>
  Processes(int ranks, Body body) {
    int gate[2];  // all begin together: forking takes its time on a busy machine
    EXPECT_EQ(::pipe(gate), 0);
    for (int r = 0; r < ranks; ++r) {
      int pipe_fds[2];
      EXPECT_EQ(::pipe(pipe_fds), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(pipe_fds[0]);
        ::close(gate[1]);
        for (const FileDescriptor& report : reports) ::close(report.get());
        char end;
        [[maybe_unused]] const auto opened = ::read(gate[0], &end, 1);
        const std::string line = body(r) + "\n";
        [[maybe_unused]] const auto written = ::write(pipe_fds[1], line.data(), line.size());
        ::_exit(0);
      }
      ::close(pipe_fds[1]);
      pids.push_back(pid);
      reports.emplace_back(pipe_fds[0]);
    }
    ::close(gate[0]);
    ::close(gate[1]);
  }
  void kill(int rank) { ::kill(pids[static_cast<std::size_t>(rank)], SIGKILL); }
  /// What rank wrote, at the latest after 60 s; then it is ended for good.
  std::string report(int rank) {
    std::string text;
    char buffer[512];
    const int fd = reports[static_cast<std::size_t>(rank)].get();
    while (text.find('\n') == std::string::npos) {
      pollfd entry{fd, POLLIN, 0};
      if (::poll(&entry, 1, 60000) <= 0) return "HANGS: " + text;
      const auto n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }
  ~Processes() {
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  }
};

/// A rendezvous at a free port, for forked ranks.
std::string free_address() { return Listener::open(Address::loopback(AF_INET))->address().text(); }

TEST(ControlDeath, KilledDuringStartIsNamedByAllOthers) {
  NEEDS_FORK();
  // Rank `victim` is killed after a random time while the others start; one more rank never comes, so that the start
  // is surely under way then.
  constexpr int kRanks = 11;
  std::mt19937 random(4711);
  for (int round = 0; round < 12; ++round) {
    const int victim = round % (kRanks - 1);
    const std::string address = free_address();
    const Secret secret = random_secret();
    Processes processes(kRanks - 1, [&](int rank) -> std::string {
      const auto control = bootstrap::join_by_address(rank, kRanks, address, secret, 4000 * kSlow);
      return control ? "joined" : control.error().message;
    });
    ::usleep(100'000 + random() % 200'000);
    processes.kill(victim);
    for (int r = 0; r < kRanks - 1; ++r) {
      if (r == victim) continue;
      const std::string text = processes.report(r);
      // A rank killed before it entered is one that did not arrive.
      EXPECT_NE(text.find("rank " + std::to_string(victim)), std::string::npos) << "rank " << r << ": " << text;
    }
  }
}

TEST(ControlDeath, KilledAtAnyMomentNobodyHangs) {
  NEEDS_FORK();
  // All ranks come; one is killed at a random moment of the start, of exchanges or of the end.
  constexpr int kRanks = 10;
  std::mt19937 random(99);
  for (int round = 0; round < 25; ++round) {
    const int victim = static_cast<int>(random() % kRanks);
    const std::string address = free_address();
    const Secret secret = random_secret();
    Processes processes(kRanks, [&](int rank) -> std::string {
      auto control = bootstrap::join_by_address(rank, kRanks, address, secret, 6000 * kSlow);
      if (!control) return control.error().message;
      for (int i = 0; i < 100; ++i) {
        std::vector<std::byte> mine(64), all(64 * kRanks);
        const Status status = (*control)->allgather(mine, all);
        if (!status) return status.error().message;
      }
      return "fine";
    });
    ::usleep(random() % 60'000);
    processes.kill(victim);
    for (int r = 0; r < kRanks; ++r) {
      if (r == victim) continue;
      const std::string text = processes.report(r);
      EXPECT_TRUE(text == "fine\n" || text.find("rank " + std::to_string(victim)) != std::string::npos)
          << "round " << round << ", victim " << victim << ", rank " << r << ": " << text;
    }
  }
}

TEST(ControlDeath, IsHeardByAllAtOnceAfterTheStart) {
  NEEDS_FORK();
  constexpr int kRanks = 12;
  for (const int victim : {0, 1, 4, 11}) {
    const std::string address = free_address();
    const Secret secret = random_secret();
    Processes processes(kRanks, [&](int rank) -> std::string {
      auto control = bootstrap::join_by_address(rank, kRanks, address, secret, 20000);
      if (!control) return control.error().message;
      Heard heard;
      (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
      std::vector<std::byte> mine(1), all(kRanks);
      if (!(*control)->allgather(mine, all)) return "no exchange";
      if (rank == victim) ::kill(::getpid(), SIGKILL);
      if (!heard.wait(1)) return "heard nothing";
      const auto [communicator, failure] = heard.all[0];
      (*control)->listen(nullptr);
      const Status after = (*control)->allgather(mine, all);
      return std::to_string(communicator) + " " + std::to_string(failure.rank) + " " +
             std::to_string(static_cast<int>(failure.code)) + (after ? " accepted" : " refused: " + after.error().message);
    });
    for (int r = 0; r < kRanks; ++r) {
      if (r == victim) continue;
      const std::string text = processes.report(r);
      EXPECT_EQ(text.find("0 " + std::to_string(victim) + " 5 refused: rank " + std::to_string(victim)), 0u)
          << "victim " << victim << " rank " << r << ": " << text;
    }
  }
}

TEST(ControlDeath, IsNoticedThoughAChildOfTheDeadHoldsItsConnections) {
  NEEDS_FORK();
  const std::string address = free_address();
  const Secret secret = random_secret();
  Processes processes(3, [&](int rank) -> std::string {
    auto control = bootstrap::join_by_address(rank, 3, address, secret, 20000);
    if (!control) return control.error().message;
    Heard heard;
    (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
    std::vector<std::byte> mine(1), all(3);
    if (!(*control)->allgather(mine, all)) return "no exchange";
    if (rank == 1) {
      if (::fork() == 0) {
        ::close(0), ::alarm(20), ::pause();
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    }
    if (!heard.wait(1, 15000ms)) return "heard nothing";
    return "lost " + std::to_string(heard.all[0].second.rank);
  });
  for (const int r : {0, 2}) EXPECT_EQ(processes.report(r), "lost 1\n");
}

TEST(ControlDeath, ForkedChildMayDestroyItsCopy) {
  NEEDS_FORK();
  const Result<UniqueId> id = make_unique_id();
  std::unique_ptr<Control> kept[2];
  on_ranks(2, [&](int rank) { kept[rank] = std::move(*join_by_id(*id, rank, 2, 20000)); });
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(10);  // a hang is an end by a signal
    kept[0].reset();
    kept[1].reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::thread other([&] { check_exchange(*kept[1], 2, 16, 1); });  // the parent's are untouched
  check_exchange(*kept[0], 2, 16, 1);
  other.join();
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
