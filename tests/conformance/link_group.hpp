#pragma once
// Ranks for tests of transports: threads of this process, or this process and a forked one, each with one
// transport of one kind, joined by an Exchange over a shared array. Every wait has a deadline, so that a
// defect fails and does not hang.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bell.hpp"
#include "transports/transport.hpp"

namespace tamaki::testing {

inline constexpr std::chrono::seconds kPatience{20};

/// Polls `done` until it is true; false after kPatience.
template <class F>
bool eventually(F&& done, std::chrono::milliseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int i = 0; !done(); ++i) {
    if (i % 64 == 63) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();  // ranks outnumber cores
    }
  }
  return true;
}

/// A board in shared memory on which up to kRanks ranks (threads or processes) exchange up to kBytes each.
class Board {
 public:
  static constexpr std::size_t kRanks = 16, kBytes = 4096;

  explicit Board(int ranks) : ranks_(ranks) {
    void* at = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    state_ = at == MAP_FAILED ? nullptr : new (at) State;
  }
  ~Board() { munmap(state_, sizeof(State)); }
  Board(const Board&) = delete;

  Status barrier() {
    const int round = state_->round.load();
    if (state_->arrived.fetch_add(1) + 1 == ranks_) {
      state_->arrived.store(0);
      state_->round.store(round + 1);
      return {};
    }
    if (eventually([&] { return state_->round.load() != round; })) return {};
    return fail(Code::timeout, "a rank did not come to the barrier");
  }
  /// The Exchange of one rank. `calls`, if given, counts.
  Exchange exchange(int rank, std::atomic<int>* calls = nullptr) {
    return [this, rank, calls](std::span<const std::byte> mine, std::span<std::byte> all) -> Status {
      if (calls != nullptr) ++*calls;
      if (mine.size() > kBytes) return fail(Code::internal, "the board is too small");
      std::memcpy(state_->data[rank], mine.data(), mine.size());
      if (Status s = barrier(); !s) return s;
      for (int r = 0; r < ranks_; ++r)
        std::memcpy(all.data() + static_cast<std::size_t>(r) * mine.size(), state_->data[r], mine.size());
      return barrier();
    };
  }

 private:
  struct State {
    std::atomic<int> arrived{0}, round{0};
    std::byte data[kRanks][kBytes];
  };
  int ranks_;
  State* state_;
};

struct Geometry {
  std::size_t slot_bytes = 8192;
  std::uint32_t depth = 4;
};

/// One rank and its transport.
struct Rank {
  int rank = 0;
  int ranks = 1;
  Board* board = nullptr;
  std::vector<RankIdentity> identities;
  std::vector<std::byte> secret;
  std::unique_ptr<Bell> bell = std::make_unique<Bell>();
  std::unique_ptr<Transport> transport;

  /// Moves the transport on; a failure is the test's.
  bool progress() {
    const Status status = transport->progress();
    EXPECT_TRUE(status) << "rank " << rank << ": " << (status ? "" : status.error().message);
    return status.has_value();
  }
  /// An open link, or null (and a failed test).
  Link* link(int peer, int channel) {
    Link* made = begin_link(peer, channel);
    return made != nullptr && wait_open(*made) ? made : nullptr;
  }
  Link* begin_link(int peer, int channel) {
    const Result<Link*> made = transport->connect(peer, channel);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? *made : nullptr;
  }
  bool wait_open(Link& link) {
    const bool open = eventually([&] { return link.open || !progress(); }) && link.open;
    EXPECT_TRUE(open) << "rank " << rank << ": link to " << link.peer << " channel " << link.channel
                      << " did not open";
    return open;
  }
  bool barrier() {
    const bool met = board->barrier().has_value();
    EXPECT_TRUE(met);
    return met;
  }
  /// What was committed is on its way; after this the rank may stop calling progress().
  bool finish(Link& link) {
    const bool gone = !link.needs_flush || eventually([&] { return link.out.drained() || !progress(); });
    EXPECT_TRUE(gone) << "rank " << rank << ": messages to " << link.peer << " do not leave";
    return gone;
  }
};

inline std::vector<RankIdentity> identities_here(int ranks, bool threads) {
  std::vector<RankIdentity> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    RankIdentity& identity = all[static_cast<std::size_t>(r)];
    identity.host = 42;
    identity.address_space = threads ? 7 : static_cast<std::uint64_t>(r) + 7;
    identity.pid = getpid();  // processes: replaced by the caller
    std::strcpy(identity.host_name, "here");
  }
  return all;
}

inline std::vector<std::byte> test_secret() { return std::vector<std::byte>(32, std::byte{0x5a}); }

/// Opens rank's transport of `entry` and sets it up. Empty, or the reason why that is not possible here.
inline std::string open_rank(const TransportEntry& entry, Rank& rank, const Geometry& geometry,
                             std::atomic<int>* calls = nullptr) {
  rank.secret = test_secret();
  Result<std::unique_ptr<Transport>> opened = entry.open({.rank = rank.rank,
                                                          .ranks = rank.identities,
                                                          .communicator = 99,
                                                          .secret = rank.secret,
                                                          .slot_bytes = geometry.slot_bytes,
                                                          .depth = geometry.depth,
                                                          .own_bell = rank.bell.get()});
  if (!opened) return opened.error().message;
  rank.transport = std::move(*opened);
  const Status status = rank.transport->setup(rank.board->exchange(rank.rank, calls));
  if (!status) return status.error().message;
  for (int peer = 0; peer < rank.ranks; ++peer)
    if (std::string why; peer != rank.rank && !rank.transport->reaches(peer, &why)) return why;
  return {};
}

/// Runs `body` as `ranks` threads, each with a transport of `entry`. Returns the reason if it cannot be
/// used that way.
inline std::string run_threads(const TransportEntry& entry, int ranks, const Geometry& geometry,
                               const std::function<void(Rank&)>& body) {
  register_for_bells();
  Board board(ranks);
  std::vector<std::string> reasons(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Rank rank{.rank = r, .ranks = ranks, .board = &board, .identities = identities_here(ranks, true)};
      reasons[static_cast<std::size_t>(r)] = open_rank(entry, rank, geometry);
      if (!board.barrier()) return;
      for (const std::string& reason : reasons)
        if (!reason.empty()) return;
      body(rank);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& reason : reasons)
    if (!reason.empty()) return reason;
  return {};
}

inline const TransportEntry& transport_named(std::string_view name) {
  for (const TransportEntry& entry : all_transports())
    if (entry.name == name) return entry;
  return all_transports()[0];
}

// ---- Messages
// ---------------------------------------------------------------------------------------------------

inline bool as_mailbox(const RingEnd& end, std::size_t bytes) {
  return end.mailbox && bytes <= kMailboxBytes;
}

/// Sends if there is room.
inline bool try_send(Link& link, std::span<const std::byte> data, std::uint32_t tag) {
  if (!link.out.can_send()) return false;
  if (as_mailbox(link.out, data.size())) {
    std::byte none{};  // memcpy wants a place even where there is nothing to copy
    link.out.send_mailbox(data.empty() ? &none : data.data(), data.size(), tag);
  } else {
    SlotHeader& header = *link.out.outgoing();
    header.bytes = static_cast<std::uint32_t>(data.size());
    header.kind = MessageKind::slot;
    header.output = {};
    if (!data.empty()) std::memcpy(link.out.payload(), data.data(), data.size());
    link.out.commit(tag);
  }
  if (link.needs_flush) link.transport->flush(link);
  link.ring();
  return true;
}

enum class Got { nothing, message, wrong };
/// Takes the next message if it is there; its length is known, as everywhere in this library.
inline Got try_receive(Link& link, std::span<std::byte> data, std::uint32_t tag) {
  const RingEnd::Arrival arrival = link.in.arrived(tag);
  if (arrival == RingEnd::Arrival::none) return Got::nothing;
  if (arrival == RingEnd::Arrival::mismatch) return Got::wrong;
  if (as_mailbox(link.in, data.size())) {
    std::byte none{};
    if (!link.in.receive_mailbox(data.empty() ? &none : data.data(), data.size(), tag)) return Got::nothing;
    link.in.release_mailbox();
  } else {
    if (link.in.incoming()->bytes != data.size() || link.in.incoming()->kind != MessageKind::slot)
      return Got::wrong;
    if (!data.empty()) std::memcpy(data.data(), link.in.incoming_payload(), data.size());
    link.in.release();
    if (link.needs_flush) link.transport->flush(link);
  }
  link.ring();
  return Got::message;
}

/// The bytes of message `number` of a stream: both ends can make them.
inline std::vector<std::byte> content(std::uint64_t stream, std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  std::uint64_t state = stream * 0x9e3779b97f4a7c15u + number * 0xbf58476d1ce4e5b9u + 1;
  for (std::byte& byte : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

inline bool send(Rank& rank, Link& link, std::span<const std::byte> data, std::uint32_t tag) {
  const bool sent = eventually([&] { return try_send(link, data, tag) || !rank.progress(); });
  EXPECT_TRUE(sent) << "rank " << rank.rank << " got no credit from " << link.peer;
  return sent;
}

inline bool receive(Rank& rank, Link& link, std::span<const std::byte> expected, std::uint32_t tag) {
  std::vector<std::byte> data(expected.size());
  Got got = Got::nothing;
  const bool came = eventually([&] {
    if ((got = try_receive(link, data, tag)) != Got::nothing) return true;
    return !rank.progress();
  });
  EXPECT_TRUE(came) << "rank " << rank.rank << " heard nothing from " << link.peer;
  EXPECT_EQ(got, Got::message) << "tag " << tag << ", " << expected.size() << " bytes";
  const bool right = data.size() == expected.size() &&
                     (data.empty() || std::memcmp(data.data(), expected.data(), data.size()) == 0);
  EXPECT_TRUE(right) << "content of " << expected.size() << " bytes from rank " << link.peer << ", tag "
                     << tag;
  return came && got == Got::message && right;
}

}  // namespace tamaki::testing
