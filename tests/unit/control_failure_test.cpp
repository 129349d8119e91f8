// The control plane under attack, and with ranks as processes that are killed at any moment.

#include "unit/control_fixture.hpp"

namespace tamaki {
namespace {

using namespace control_test;

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

/// A rendezvous at a free port, for forked ranks.
std::string free_address() { return Listener::open(Address::loopback(AF_INET))->address().text(); }

TEST(ControlDeath, KilledDuringStartIsNamedByAllOthers) {
  NEEDS_FORK();
  // Rank `victim` is killed after a random time while the others start; one more rank never comes, so that the start
  // is surely under way then.
  constexpr int kRanks = 11;
  std::mt19937 random(4711);
  for (int round = 0; round < 5; ++round) {
    const int victim = round * 3 % (kRanks - 1);
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
  for (int round = 0; round < 10; ++round) {
    const int victim = static_cast<int>(random() % kRanks);
    const std::string address = free_address();
    const Secret secret = random_secret();
    Processes processes(kRanks, [&](int rank) -> std::string {
      auto control = bootstrap::join_by_address(rank, kRanks, address, secret, 2500 * kSlow);
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

}  // namespace
}  // namespace tamaki
