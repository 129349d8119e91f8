// tcp against what it cannot trust: strangers at its port, peers that break the format, rings that do not
// fit.

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <random>

#include "base/handshake.hpp"
#include "base/socket.hpp"
#include "conformance/link_group.hpp"
#include "transports/tcp/channel.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/paths.hpp"

namespace tamaki::testing {
namespace {

const TransportEntry& tcp_entry() { return transport_named("tcp"); }

std::string fact(const Transport& transport, std::string_view name) {
  for (const auto& [key, value] : transport.facts())
    if (key == name) return value;
  return {};
}

/// First address that the transport listens on.
Address listen_address(const Transport& transport) {
  std::string text = fact(transport, "listen");
  text = text.substr(0, text.find(','));
  Result<Address> address = Address::parse(text);
  EXPECT_TRUE(address) << text;
  return address ? *address : Address();
}

Socket dial(const Address& address) {
  Result<Socket> socket = Socket::connect(address, deadline_in(5000));
  EXPECT_TRUE(socket) << (socket ? "" : socket.error().message);
  return socket ? std::move(*socket) : Socket();
}

/// True once the other end has closed the socket.
bool closed_by_peer(Rank& rank, Socket& socket) {
  return eventually([&] {
    EXPECT_TRUE(rank.progress());
    std::array<std::byte, 64> rest;
    return !socket.receive_some(rest);
  });
}

// A stranger's bytes are never an error of the job; its connection is closed and links work on.
TEST(TcpTest, JunkAtTheListeningSocketIsHarmless) {
  const std::string reason = run_threads(tcp_entry(), 2, Geometry{}, [&](Rank& rank) {
    const Address address = listen_address(*rank.transport);
    std::vector<Socket> silent;  // port scans that say nothing
    for (int i = 0; i < 10; ++i) silent.push_back(dial(address));
    std::mt19937 random(7);
    for (int i = 0; i < 30; ++i) {
      Socket stranger = dial(address);
      std::vector<std::byte> junk(1 + random() % 3000);
      for (std::byte& b : junk) b = static_cast<std::byte>(random());
      if (i % 3 == 1) {
        constexpr std::string_view text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        junk.assign(reinterpret_cast<const std::byte*>(text.data()),
                    reinterpret_cast<const std::byte*>(text.data()) + text.size());
      } else if (i % 3 == 2) {  // well-formed, but of another job
        const std::vector<std::byte> other(32, std::byte{1});
        Handshake wrong(Handshake::Role::dialled, other);
        junk.assign(wrong.outgoing().begin(), wrong.outgoing().end());
      }
      EXPECT_TRUE(stranger.send(junk, deadline_in(5000)));
      EXPECT_TRUE(closed_by_peer(rank, stranger)) << "stranger " << i;
    }
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    for (std::uint32_t n = 1; n < 100; ++n)
      if (!send(rank, *link, content(rank.rank, n, n * 7), n) ||
          !receive(rank, *link, content(1 - rank.rank, n, n * 7), n))
        return;
    rank.finish(*link);
    rank.barrier();
  });
  EXPECT_EQ(reason, "");
}

/// Rank 1 of 2, whose peer is this test: it dials, proves itself and then sends what it likes.
struct Forger {
  Board board{2};
  Rank victim{.rank = 1, .ranks = 2, .board = &board, .identities = identities_here(2, true)};
  Socket socket;
  Link* link = nullptr;
  static constexpr Geometry kGeometry{.slot_bytes = 1000, .depth = 4};

  bool connect(std::span<const std::byte> secret, std::optional<tcp::Hello> hello) {
    // The other side of the exchange: a rank that offers the same address, so that there is a path.
    std::thread other([&] {
      Rank rank{.rank = 0, .ranks = 2, .board = &board, .identities = identities_here(2, true)};
      EXPECT_EQ(open_rank(tcp_entry(), rank, kGeometry), "");
    });
    const std::string reason = open_rank(tcp_entry(), victim, kGeometry);
    other.join();
    EXPECT_EQ(reason, "");
    link = victim.begin_link(0, 0);
    socket = dial(listen_address(*victim.transport));
    if (link == nullptr || !socket) return false;
    Handshake handshake(Handshake::Role::dialled, secret);
    const bool proven = eventually([&] {
      static_cast<void>(victim.transport->progress());
      if (!handshake.outgoing().empty()) {
        handshake.sent(handshake.outgoing().size() *
                       socket.send(handshake.outgoing(), deadline_in(5000)).has_value());
      } else if (Result<std::size_t> got = socket.receive_some(handshake.room());
                 !got || !handshake.received(*got)) {
        return true;
      }
      return handshake.done();
    });
    if (!proven || !handshake.done()) return false;
    if (!hello) return true;
    tcp::Frame frame{.kind = static_cast<std::uint16_t>(tcp::FrameKind::hello), .bytes = sizeof *hello};
    send(frame, std::as_bytes(std::span(&*hello, 1)));
    return true;
  }
  static tcp::Hello right_hello() { return {.communicator = 99, .from = 0, .to = 1}; }

  void send(const tcp::Frame& frame, std::span<const std::byte> payload = {}) {
    EXPECT_TRUE(socket.send(std::as_bytes(std::span(&frame, 1)), deadline_in(5000)));
    EXPECT_TRUE(socket.send(payload, deadline_in(5000)));
  }
  void open() {
    send({.kind = static_cast<std::uint16_t>(tcp::FrameKind::open),
          .sequence = kGeometry.depth,
          .bytes = static_cast<std::uint32_t>(kGeometry.slot_bytes)});
  }
  static tcp::Frame data(std::uint32_t sequence, std::uint32_t bytes) {
    return {.kind = static_cast<std::uint16_t>(tcp::FrameKind::data),
            .sequence = sequence,
            .tag = 5,
            .bytes = bytes};
  }
  /// The victim's error, which must come.
  Error verdict() {
    Status status;
    EXPECT_TRUE(eventually([&] { return !(status = victim.transport->progress()); })) << "not noticed";
    return status ? Error{} : status.error();
  }
};

TEST(TcpTest, TakesFramesThatFollowTheFormat) {
  Forger forger;
  ASSERT_TRUE(forger.connect(test_secret(), Forger::right_hello()));
  forger.open();
  ASSERT_TRUE(forger.victim.wait_open(*forger.link));
  const std::vector<std::byte> payload = content(1, 1, 900);
  forger.send(Forger::data(1, 900), payload);
  EXPECT_TRUE(receive(forger.victim, *forger.link, payload, 5));
  // One byte at a time is the same to it.
  tcp::Frame frame = Forger::data(2, 30);
  std::vector<std::byte> bytes(sizeof frame + 30, std::byte{9});
  std::memcpy(bytes.data(), &frame, sizeof frame);
  for (const std::byte& byte : bytes) {
    ASSERT_TRUE(forger.socket.send(std::span(&byte, 1), deadline_in(5000)));
    ASSERT_TRUE(forger.victim.progress());
  }
  EXPECT_TRUE(receive(forger.victim, *forger.link, std::vector<std::byte>(30, std::byte{9}), 5));
}

TEST(TcpTest, NamesThePeerThatBreaksTheFormat) {
  struct Case {
    const char* what;
    bool opened;
    std::vector<tcp::Frame> frames;
    const char* words;  // in the message
  };
  tcp::Frame magic = Forger::data(1, 8), channel = Forger::data(1, 8), kind = Forger::data(1, 8),
             far = Forger::data(1, 8);
  magic.magic ^= 1;
  channel.channel = 3;
  far.channel = 60000;
  kind.kind = 77;
  tcp::Frame credit{.kind = static_cast<std::uint16_t>(tcp::FrameKind::credit), .consumed = 12};
  const tcp::Frame geometry{
      .kind = static_cast<std::uint16_t>(tcp::FrameKind::open), .sequence = 64, .bytes = 999};
  const tcp::Frame goodbye{.kind = static_cast<std::uint16_t>(tcp::FrameKind::goodbye)};
  const tcp::Frame hello{.kind = static_cast<std::uint16_t>(tcp::FrameKind::hello),
                         .bytes = sizeof(tcp::Hello)};
  const std::vector<Case> cases = {
      {"magic", true, {magic}, "no frame"},
      {"channel", true, {channel}, "not open"},
      {"far channel", true, {far}, "60000"},
      {"kind", true, {kind}, "not open"},
      {"data before open", false, {Forger::data(1, 8)}, "not open"},
      {"sequence ahead", true, {Forger::data(2, 8)}, "was due"},
      {"sequence behind", true, {Forger::data(0, 8)}, "was due"},
      {"too long", true, {Forger::data(1, 1001)}, "at most 1000"},
      {"absurdly long", true, {Forger::data(1, 0xffffffffu)}, "at most 1000"},
      {"no credit",
       true,
       {Forger::data(1, 0), Forger::data(2, 0), Forger::data(3, 0), Forger::data(4, 0), Forger::data(5, 0)},
       "ring is full"},
      {"credit for nothing", true, {credit}, "only 0 were sent"},
      {"geometry", false, {geometry}, "rings of 64 slots of 999"},
      {"after goodbye", true, {goodbye, Forger::data(1, 8)}, "goodbye"},
      {"hello again", true, {hello, hello}, "hello"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Forger forger;
    ASSERT_TRUE(forger.connect(test_secret(), Forger::right_hello()));
    if (c.opened) forger.open();
    for (const tcp::Frame& frame : c.frames) forger.send(frame);
    const Error error = forger.verdict();
    EXPECT_EQ(error.code, std::string_view(c.what) == "geometry" ? Code::mismatch : Code::peer_lost);
    EXPECT_NE(error.message.find("rank 0 (host here"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(c.words), std::string::npos) << error.message;
  }
}

TEST(TcpTest, SeesTheEndOfAPeerThatSaidNoGoodbye) {
  for (const bool in_a_message : {false, true}) {
    Forger forger;
    ASSERT_TRUE(forger.connect(test_secret(), Forger::right_hello()));
    forger.open();
    EXPECT_TRUE(forger.victim.wait_open(*forger.link));
    if (in_a_message) forger.send(Forger::data(1, 1000), std::vector<std::byte>(400));
    forger.socket.close();
    const Error error = forger.verdict();
    EXPECT_EQ(error.code, Code::peer_lost);
    EXPECT_NE(error.message.find("rank 0 (host here"), std::string::npos) << error.message;
    EXPECT_EQ(forger.link->in.arrived(5), RingEnd::Arrival::none) << "half a message is none";
  }
}

TEST(TcpTest, DropsThoseWhoKnowTheSecretButNotTheCommunicator) {
  std::vector<tcp::Hello> wrong(4, Forger::right_hello());
  wrong[0].communicator = 98;
  wrong[1].to = 0;
  wrong[2].from = 1;
  wrong[3].from = 0x80000000u;
  for (const tcp::Hello& hello : wrong) {
    Forger forger;
    ASSERT_TRUE(forger.connect(test_secret(), hello));
    EXPECT_TRUE(closed_by_peer(forger.victim, forger.socket));
    EXPECT_TRUE(forger.victim.progress());
  }
}

TEST(TcpTest, ReadsNothingOfThoseWhoDoNotKnowTheSecret) {
  Forger forger;
  const std::vector<std::byte> other(32, std::byte{0x5b});
  EXPECT_FALSE(forger.connect(other, Forger::right_hello()));
  EXPECT_TRUE(forger.victim.progress());
  EXPECT_FALSE(forger.link->open);
}

// 2^32 messages are too many to send: both ends are set to just before the wrap.
TEST(TcpTest, SequenceNumbersWrap) {
  const std::string reason = run_threads(tcp_entry(), 2, Geometry{}, [&](Rank& rank) {
    Link* link = rank.link(1 - rank.rank, 0);
    if (link == nullptr) return;
    constexpr std::uint32_t kStart = 0xfffffff3u;
    tcp::Channel& channel = *static_cast<tcp::OwnedLink*>(link)->owner;
    for (RingEnd* end : {&link->in, &link->out, &channel.departing, &channel.arriving}) {
      end->next = kStart;
      end->credited = kStart - 1;
      end->credit->consumed.store(kStart - 1);
    }
    channel.taken = kStart;
    channel.peer_consumed = channel.told = channel.received = kStart - 1;
    if (!rank.barrier()) return;
    for (std::uint32_t n = 0; n < 40; ++n) {
      if (!send(rank, *link, content(rank.rank, n, n * 20), n)) return;
      if (!receive(rank, *link, content(1 - rank.rank, n, n * 20), n)) return;
    }
    EXPECT_LT(link->in.next, 100u);
    rank.finish(*link);
    rank.barrier();
  });
  EXPECT_EQ(reason, "");
}

TEST(TcpTest, NeedsASecretAndRingsThatAreRings) {
  const std::vector<std::byte> secret = test_secret();
  const std::vector<RankIdentity> ranks = identities_here(1, true);
  EXPECT_FALSE(tcp_entry().open({.ranks = ranks, .secret = {}, .slot_bytes = 64, .depth = 4}));
  EXPECT_FALSE(tcp_entry().open({.ranks = ranks, .secret = secret, .slot_bytes = 64, .depth = 6}));
  const auto opened = tcp_entry().open({.ranks = ranks, .secret = secret, .slot_bytes = 64, .depth = 4});
  ASSERT_TRUE(opened);
  std::string why;
  EXPECT_FALSE((*opened)->reaches(0, &why)) << "not before setup";
}

}  // namespace
}  // namespace tamaki::testing
