// What every transport promises of its links. Each test runs over every transport of transports.def; where
// one cannot be used between threads of one process, or lacks what a test is about, the test is skipped
// with the reason.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/shared_region.hpp"
#include "conformance/link_group.hpp"

namespace tamaki::testing {
namespace {

class LinkTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const TransportEntry& entry() const { return transport_named(GetParam()); }
};

#define RUN_OR_SKIP(ranks, geometry, ...)                                                             \
  if (const std::string reason = run_threads(entry(), ranks, geometry, __VA_ARGS__); !reason.empty()) \
  GTEST_SKIP() << entry().name << ": " << reason

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const TransportEntry& entry : all_transports()) all.push_back(entry.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, LinkTest, ::testing::ValuesIn(names()),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST_P(LinkTest, CarriesEverySizeBothWays) {
  const Geometry geometry;
  RUN_OR_SKIP(2, geometry, [&](Rank& rank) {
    const int peer = 1 - rank.rank;
    Link* link = rank.link(peer, 0);
    if (link == nullptr) return;
    EXPECT_EQ(link->peer, peer);
    EXPECT_EQ(link->slot_bytes, geometry.slot_bytes);
    std::uint32_t tag = 1;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{55}, std::size_t{56}, std::size_t{57},
          std::size_t{560}, std::size_t{561}, geometry.slot_bytes - 1, geometry.slot_bytes})
      for (int round = 0; round < 3; ++round, ++tag) {
        if (!send(rank, *link, content(rank.rank, tag, bytes), tag)) return;
        if (!receive(rank, *link, content(peer, tag, bytes), tag)) return;
      }
    rank.finish(*link);
    rank.barrier();
  });
}

// Every rank talks with every other one on several channels at once, at its own pace in each direction.
TEST_P(LinkTest, CarriesRandomTrafficOnManyChannels) {
  const Geometry geometry{.slot_bytes = 4096, .depth = 8};
  constexpr int kRanks = 3, kChannelsUsed = 3, kMessages = 1500;
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RUN_OR_SKIP(kRanks, geometry, [&](Rank& rank) {
    struct Flow {
      Link* link = nullptr;
      std::mt19937_64 sizes_out, sizes_in;
      int sent = 0, received = 0;
      std::vector<std::byte> next;
      bool drawn = false;  // next holds the message to send
    };
    const auto stream = [&](int from, int to, int channel) {
      return seed + static_cast<std::uint64_t>((from * kRanks + to) * kChannelsUsed + channel);
    };
    const auto draw = [&](std::mt19937_64& random) -> std::size_t {
      return random() % 4 != 0 ? random() % 700 : random() % (geometry.slot_bytes + 1);
    };
    std::vector<Flow> flows;
    for (int peer = 0; peer < kRanks; ++peer)
      for (int channel = 0; channel < kChannelsUsed && peer != rank.rank; ++channel) {
        Flow flow{.link = rank.begin_link(peer, channel)};
        if (flow.link == nullptr) return;
        flow.sizes_out.seed(stream(rank.rank, peer, channel));
        flow.sizes_in.seed(stream(peer, rank.rank, channel));
        flows.push_back(std::move(flow));
      }
    for (Flow& flow : flows)
      if (!rank.wait_open(*flow.link)) return;
    std::mt19937_64 pace(seed ^ static_cast<std::uint64_t>(rank.rank));
    std::vector<std::byte> data;
    const bool all = eventually([&] {
      bool over = true;
      for (Flow& flow : flows) {
        const int channel = flow.link->channel, peer = flow.link->peer;
        for (std::uint64_t burst = pace() % 6; burst > 0 && flow.sent < kMessages; --burst) {
          if (!flow.drawn)
            flow.next = content(stream(rank.rank, peer, channel), flow.sent, draw(flow.sizes_out));
          flow.drawn = true;
          if (!try_send(*flow.link, flow.next, 1000u + static_cast<std::uint32_t>(flow.sent))) break;
          flow.drawn = false;
          ++flow.sent;
        }
        for (std::uint64_t burst = pace() % 6; burst > 0 && flow.received < kMessages; --burst) {
          std::mt19937_64 peek = flow.sizes_in;
          data.resize(draw(peek));
          const Got got = try_receive(*flow.link, data, 1000u + static_cast<std::uint32_t>(flow.received));
          if (got == Got::nothing) break;
          flow.sizes_in = peek;
          EXPECT_EQ(got, Got::message);
          const bool right = data == content(stream(peer, rank.rank, channel), flow.received, data.size());
          EXPECT_TRUE(right) << "message " << flow.received << " of " << data.size() << " bytes from "
                             << peer;
          if (!right || got != Got::message) return true;
          ++flow.received;
        }
        over = over && flow.sent == kMessages && flow.received == kMessages;
      }
      return over || !rank.progress();
    });
    EXPECT_TRUE(all);
    for (Flow& flow : flows) {
      EXPECT_EQ(flow.sent, kMessages);
      EXPECT_EQ(flow.received, kMessages);
      rank.finish(*flow.link);
    }
    rank.barrier();
  });
}

// depth messages fit into a ring of common memory; a local ring and the peer's copy of it hold at most
// twice as many.
TEST_P(LinkTest, SenderStopsWithoutCredit) {
  const Geometry geometry{.slot_bytes = 1024, .depth = 8};
  RUN_OR_SKIP(2, geometry, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 5);
    if (link == nullptr) return;
    const std::vector<std::byte> data = content(1, 1, 1024);
    if (rank.rank == 0) {
      std::uint32_t sent = 0;
      const auto quiet = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      while (std::chrono::steady_clock::now() < quiet) {
        while (try_send(*link, data, sent + 1)) ++sent;
        if (!rank.progress()) return;
      }
      EXPECT_GE(sent, geometry.depth);
      EXPECT_LE(sent, link->needs_flush ? 2 * geometry.depth : geometry.depth);
      rank.barrier();  // the receiver starts
      for (; sent < 100; ++sent)
        if (!send(rank, *link, data, sent + 1)) return;
      rank.finish(*link);
    } else {
      rank.barrier();
      for (std::uint32_t n = 0; n < 100; ++n)
        if (!receive(rank, *link, data, n + 1)) return;
      EXPECT_EQ(link->in.arrived(101), RingEnd::Arrival::none);
    }
    rank.barrier();
  });
}

TEST_P(LinkTest, FindsDisagreementByTheTag) {
  RUN_OR_SKIP(2, Geometry{}, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4000}}) {
      const std::vector<std::byte> data = content(3, bytes, bytes);
      if (rank.rank == 0) {
        if (!send(rank, *link, data, 0x1111) || !rank.finish(*link)) return;
      } else {
        std::vector<std::byte> room(bytes);
        Got got = Got::nothing;
        EXPECT_TRUE(eventually(
            [&] { return (got = try_receive(*link, room, 0x2222)) != Got::nothing || !rank.progress(); }));
        EXPECT_EQ(got, Got::wrong);
        if (!receive(rank, *link, data, 0x1111)) return;  // the message itself is untouched
      }
    }
    rank.barrier();
  });
}

// Rings of common memory may start anywhere; 2^32 messages are too many to send. (tcp: tcp_test.cpp.)
TEST_P(LinkTest, SequenceNumbersWrap) {
  bool local = false;
  RUN_OR_SKIP(2, Geometry{}, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    if (link->needs_flush) {
      local = true;
      return;
    }
    constexpr std::uint32_t kStart = 0xfffffff3u;
    link->in.next = link->out.next = kStart;
    link->in.credited = link->out.credited = kStart - 1;
    link->in.credit->consumed.store(kStart - 1);
    if (!rank.barrier()) return;
    for (std::uint32_t n = 0; n < 40; ++n) {
      const std::size_t bytes = n % 3 == 0 ? 8 : 600;
      if (!send(rank, *link, content(rank.rank, n, bytes), n)) return;
      if (!receive(rank, *link, content(1 - rank.rank, n, bytes), n)) return;
    }
    EXPECT_LT(link->in.next, 100u);
    rank.barrier();
  });
  if (local) GTEST_SKIP() << entry().name << ": its rings are local, the transport counts along";
}

// A rank that sleeps on its bell, or on the transport's descriptors, is woken by a message.
TEST_P(LinkTest, MessagesWakeSleepers) {
  std::atomic<bool> asleep{false};
  RUN_OR_SKIP(2, Geometry{}, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    const std::vector<std::byte> data = content(9, 9, 100);
    constexpr int kRounds = 5;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      if (!rank.barrier()) return;
      if (rank.rank == 0) {
        const auto sleeping = [&] {
          return link->bell != nullptr ? link->bell->sleeping.load() != 0 : asleep.load();
        };
        EXPECT_TRUE(eventually([&] { return sleeping() || !rank.progress(); }));
        std::this_thread::sleep_for(std::chrono::milliseconds(round));
        if (!send(rank, *link, data, round) || !rank.finish(*link)) return;
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      Bell* bell = rank.transport->own_bell();
      while (link->in.arrived(round) == RingEnd::Arrival::none) {
        if (bell != nullptr) {
          const std::uint32_t ticket = prepare_sleep(*bell);
          if (link->in.arrived(round) == RingEnd::Arrival::none)
            sleep_on(*bell, ticket, link->bell_shared, 20'000'000);
          end_sleep(*bell);
        } else {
          std::vector<int> fds;
          rank.transport->wait_descriptors(&fds);
          EXPECT_FALSE(fds.empty()) << "neither bell nor descriptor to sleep on";
          if (fds.empty()) return;
          std::vector<pollfd> polled;
          for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
          asleep = true;
          EXPECT_GT(poll(polled.data(), polled.size(), 20'000), 0);
          asleep = false;
        }
        if (!rank.progress() || std::chrono::steady_clock::now() - start > kPatience) break;
      }
      EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience / 2) << "slept until its time was over";
      if (!receive(rank, *link, data, round)) return;
    }
    rank.barrier();
  });
}

TEST_P(LinkTest, DirectAccessReachesTheRightBytes) {
  constexpr std::size_t kBytes = 100'000;
  struct Offer {
    MemoryName memory, region;
  };
  bool any = false;
  RUN_OR_SKIP(2, Geometry{}, [&](Rank& rank) {
    const int peer = 1 - rank.rank;
    Link* link = rank.link(peer, 0);
    if (link == nullptr) return;
    std::vector<std::byte> own = content(rank.rank, 1, kBytes), written(kBytes);
    const Result<void*> region = allocate_shared(kBytes);
    ASSERT_TRUE(region) << region.error().message;
    auto* shared = static_cast<std::byte*>(*region);
    std::ranges::copy(content(rank.rank, 2, kBytes), shared);
    const Offer mine{.memory = {.address = reinterpret_cast<std::uint64_t>(own.data())},
                     .region = name_memory(shared + 64, kBytes - 64)};
    EXPECT_NE(mine.region.region, 0u);
    Offer theirs;
    if (!send(rank, *link, std::as_bytes(std::span(&mine, 1)), 1)) return;
    Got got = Got::nothing;
    EXPECT_TRUE(eventually([&] {
      return (got = try_receive(*link, std::as_writable_bytes(std::span(&theirs, 1)), 1)) != Got::nothing ||
             !rank.progress();
    }));
    if (got != Got::message || !rank.finish(*link) || !rank.barrier()) return;

    std::vector<std::byte> copy(kBytes);
    if (link->common_memory) {
      if (rank.rank == 0) any = true;
      const std::byte* at = rank.transport->map(*link, theirs.memory, kBytes);
      EXPECT_EQ(reinterpret_cast<std::uint64_t>(at), theirs.memory.address);
      if (at != nullptr) {
        EXPECT_TRUE(std::ranges::equal(std::span(at, kBytes), content(peer, 1, kBytes)));
      }
    }
    if (link->can_get) {
      if (rank.rank == 0) any = true;
      const Status status = rank.transport->get(*link, copy.data(), theirs.memory.address, kBytes);
      EXPECT_TRUE(status) << status.error().message;
      EXPECT_EQ(copy, content(peer, 1, kBytes));
    }
    if (link->maps_regions) {
      if (rank.rank == 0) any = true;
      std::byte* at = rank.transport->map(*link, theirs.region, kBytes - 64);
      EXPECT_NE(at, nullptr);
      if (at != nullptr) {
        const std::vector<std::byte> expected = content(peer, 2, kBytes);
        EXPECT_TRUE(std::ranges::equal(std::span(at, kBytes - 64), std::span(expected).subspan(64)));
      }
      EXPECT_EQ(rank.transport->map(*link, theirs.region, kBytes - 64), at) << "mapped twice";
      if (!rank.barrier()) return;
      if (at != nullptr) at[7] = std::byte{0xe7};
      if (!rank.barrier()) return;
      EXPECT_EQ(shared[64 + 7], std::byte{0xe7});
    }
    if (!rank.barrier()) return;
    if (link->can_put) {
      const std::vector<std::byte> source = content(rank.rank, 3, 5000);
      const Status status =
          rank.transport->put(*link, source.data(), theirs.memory.address + 10, source.size());
      EXPECT_TRUE(status) << status.error().message;
      if (!rank.barrier()) return;
      std::vector<std::byte> expected = content(rank.rank, 1, kBytes);
      std::ranges::copy(content(peer, 3, 5000), expected.begin() + 10);
      EXPECT_EQ(own, expected);
    }
    if (!link->can_get && !link->can_put) {
      const Status refused = rank.transport->get(*link, copy.data(), theirs.memory.address, kBytes);
      EXPECT_FALSE(refused) << "a transport without single copies copies nothing";
    }
    rank.barrier();
    EXPECT_TRUE(free_shared(shared));
  });
  if (!any) GTEST_SKIP() << entry().name << ": has no direct access to a peer's memory";
}

TEST_P(LinkTest, StalledChannelDoesNotHoldUpOthers) {
  const Geometry geometry{.slot_bytes = 65536, .depth = 4};  // more than a socket holds
  RUN_OR_SKIP(2, geometry, [&](Rank& rank) {
    Link* stalled = rank.link(1 - rank.rank, 0);
    Link* busy = rank.link(1 - rank.rank, 1);
    Link* back = rank.link(1 - rank.rank, 2);
    if (stalled == nullptr || busy == nullptr || back == nullptr) return;
    const std::vector<std::byte> large = content(1, 1, geometry.slot_bytes);
    std::uint32_t waiting = 0;
    if (rank.rank == 0)
      while (try_send(*stalled, large, waiting + 1)) ++waiting;
    for (std::uint32_t n = 0; n < 200; ++n) {
      const std::vector<std::byte> ping = content(2, n, n * 300), pong = content(3, n, 64);
      if (rank.rank == 0) {
        while (try_send(*stalled, large, waiting + 1)) ++waiting;
        if (!send(rank, *busy, ping, n + 1) || !receive(rank, *back, pong, n + 1)) return;
      } else if (!receive(rank, *busy, ping, n + 1) || !send(rank, *back, pong, n + 1)) {
        return;
      }
    }
    if (rank.rank == 0) {
      EXPECT_GE(waiting, geometry.depth);
      // The peer starts to take them only now.
      if (!send(rank, *busy, std::as_bytes(std::span(&waiting, 1)), 999) || !rank.finish(*busy)) return;
      rank.finish(*stalled);
    } else {
      Got got = Got::nothing;
      EXPECT_TRUE(eventually([&] {
        return (got = try_receive(*busy, std::as_writable_bytes(std::span(&waiting, 1)), 999)) !=
                   Got::nothing ||
               !rank.progress();
      }));
      if (got != Got::message) return;
      for (std::uint32_t n = 0; n < waiting; ++n)
        if (!receive(rank, *stalled, large, n + 1)) return;
      rank.finish(*back);
    }
    rank.barrier();
  });
}

// A rank that is done with its part leaves; what it sent is still to come.
TEST_P(LinkTest, MessagesOutliveTheirSender) {
  const Geometry geometry{.slot_bytes = 65536, .depth = 8};
  std::atomic<bool> gone{false};
  RUN_OR_SKIP(2, geometry, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    if (rank.rank == 0) {
      // Unread data on the leaving side must not hurt those under way.
      if (!rank.barrier()) return;
      std::uint32_t sent = 0;
      for (; sent < geometry.depth; ++sent)
        if (!send(rank, *link, content(4, sent, geometry.slot_bytes), sent + 1)) return;
      rank.transport.reset();
      gone = true;
      return;
    }
    if (!send(rank, *link, content(5, 0, 50'000), 1) || !rank.finish(*link) || !rank.barrier()) return;
    // Nothing is consumed here until the sender has left.
    EXPECT_TRUE(eventually([&] { return gone || !rank.progress(); }));
    for (std::uint32_t n = 0; n < geometry.depth; ++n)
      if (!receive(rank, *link, content(4, n, geometry.slot_bytes), n + 1)) return;
    EXPECT_TRUE(rank.progress());
  });
}

TEST_P(LinkTest, RepeatsConnectAndRefusesStrangePeers) {
  RUN_OR_SKIP(2, Geometry{}, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    const Result<Link*> again = rank.transport->connect(1 - rank.rank, 0);
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, link) << "one link for a peer and channel";
    for (const int peer : {-1, 2, 1000}) {
      EXPECT_FALSE(rank.transport->connect(peer, 0));
      EXPECT_FALSE(rank.transport->reaches(peer));
    }
    EXPECT_FALSE(rank.transport->connect(1 - rank.rank, -1));
    rank.barrier();
  });
}

TEST_P(LinkTest, LeavesNoDescriptorsBehind) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto once = [&] {
    return run_threads(entry(), 3, Geometry{}, [&](Rank& rank) {
      for (int peer = 0; peer < 3; ++peer)
        if (peer != rank.rank && rank.link(peer, 0) == nullptr) return;
      rank.barrier();
    });
  };
  if (const std::string reason = once(); !reason.empty()) GTEST_SKIP() << entry().name << ": " << reason;
  const auto before = descriptors();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(once(), "");
  EXPECT_EQ(descriptors(), before);
}

// Setup calls the exchange equally often on all ranks, or ranks of one job would wait for each other for
// ever.
TEST_P(LinkTest, ExchangesEquallyOften) {
  Board board(3);
  std::array<std::atomic<int>, 3> calls{};
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Rank rank{.rank = r, .ranks = 3, .board = &board, .identities = identities_here(3, true)};
      // Rank 2 is on another host, in another process: what its peers share is not for it.
      rank.identities[2].host = 43;
      rank.identities[2].address_space = 8;
      static_cast<void>(open_rank(entry(), rank, Geometry{}, &calls[static_cast<std::size_t>(r)]));
      EXPECT_TRUE(board.barrier());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(calls[0].load(), 0);
  EXPECT_EQ(calls[0].load(), calls[1].load());
  EXPECT_EQ(calls[0].load(), calls[2].load());
}

// ---- Processes
// --------------------------------------------------------------------------------------------------

enum class At { reading, sending };

/// kill -9 of a rank that is connected; the other one is told who it was.
void peer_death(const TransportEntry& entry, At at) {
  register_for_bells();
  Board board(2);
  const pid_t parent = getpid();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  const Geometry geometry{.slot_bytes = 65536, .depth = 4};
  Rank rank{
      .rank = child == 0 ? 1 : 0, .ranks = 2, .board = &board, .identities = identities_here(2, false)};
  rank.identities[0].pid = parent;
  rank.identities[1].pid = child == 0 ? getpid() : child;
  std::vector<std::byte> victim_data(64, std::byte{1});
  if (child == 0) {
    if (!open_rank(entry, rank, geometry).empty()) _exit(1);
    Link* link = rank.link(0, 0);
    if (link == nullptr || !send(rank, *link, victim_data, 1) || !rank.finish(*link)) _exit(1);
    while (true) pause();
  }
  struct Reaper {
    pid_t pid;
    ~Reaper() { end(); }
    void end() {
      if (pid <= 0) return;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      pid = 0;
    }
  } reaper{child};
  if (const std::string reason = open_rank(entry, rank, geometry); !reason.empty())
    GTEST_SKIP() << entry.name << ": " << reason;
  Link* link = rank.link(1, 0);
  ASSERT_NE(link, nullptr);
  ASSERT_TRUE(receive(rank, *link, victim_data, 1));
  if (!link->needs_flush && !link->can_get)
    GTEST_SKIP() << entry.name << ": deaths of peers are seen by the control plane only";
  const std::vector<std::byte> large = content(1, 1, geometry.slot_bytes);
  if (at == At::sending)
    for (std::uint32_t n = 0; try_send(*link, large, n + 1);) ++n;
  EXPECT_TRUE(rank.progress());
  reaper.end();
  Status status;
  std::vector<std::byte> copy(64);
  EXPECT_TRUE(eventually(
      [&] {
        status = link->needs_flush
                     ? rank.transport->progress()
                     : rank.transport->get(*link, copy.data(),
                                           reinterpret_cast<std::uint64_t>(victim_data.data()), 64);
        return !status;
      },
      std::chrono::milliseconds(1000)))
      << "not reported within a second";
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::peer_lost) << status.error().message;
  if (link->needs_flush) {
    EXPECT_NE(status.error().message.find("rank 1 "), std::string::npos) << status.error().message;
    EXPECT_FALSE(rank.transport->progress()) << "the failure stays";
  }
}

TEST_P(LinkTest, NamesADeadPeerWhileReading) { peer_death(entry(), At::reading); }
TEST_P(LinkTest, NamesADeadPeerWhileSending) { peer_death(entry(), At::sending); }

}  // namespace
}  // namespace tamaki::testing
