#include "base/socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

namespace tamaki {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + i / 251);
  return data;
}

struct Pair {
  Socket a, b;
};

Pair connected_pair(int family = AF_INET) {
  Result<Listener> listener = Listener::open(Address::loopback(family));
  EXPECT_TRUE(listener) << listener.error().message;
  Result<Socket> a = Socket::connect(listener->address(), deadline_in(5000));
  EXPECT_TRUE(a) << a.error().message;
  Result<Socket> b = listener->accept(deadline_in(5000));
  EXPECT_TRUE(b) << b.error().message;
  return {std::move(*a), std::move(*b)};
}

bool has_ipv6() { return static_cast<bool>(Listener::open(Address::loopback(AF_INET6))); }

TEST(Address, ParsesAndPrints) {
  for (const char* text : {"10.1.2.3", "10.1.2.3:80", "[::1]:8080", "[2001:db8::5]:1", "255.255.255.255:65535"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address) << text << ": " << address.error().message;
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(Address::parse("::1")->text(), "::1");
  EXPECT_EQ(Address::parse("::1")->family(), AF_INET6);
  EXPECT_EQ(Address::parse("[::1]:77")->port(), 77);
}

TEST(Address, RefusesNonsenseByName) {
  for (const char* text : {"", "host name", "10.1.2.3:99999", "10.1.2.3:x", "10.1.2.3:-1", "300.1.1.1", "[::1", "[]:5"}) {
    const auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, Code::invalid_argument) << text;
    EXPECT_NE(address.error().message.find(text), std::string::npos) << address.error().message;
  }
}

TEST(Address, EncodesToAFixedFormAndBack) {
  for (const char* text : {"10.1.2.3:80", "[2001:db8::5]:40000", "127.0.0.1"}) {
    const Address address = *Address::parse(text);
    const auto decoded = Address::decode(address.encode());
    ASSERT_TRUE(decoded) << text;
    EXPECT_EQ(*decoded, address);
    EXPECT_EQ(decoded->text(), text);
  }
  EXPECT_FALSE(Address::decode(Address().encode()));
  std::array<std::byte, Address::kEncodedBytes> junk{};
  junk[0] = std::byte{77};
  EXPECT_FALSE(Address::decode(junk));
}

TEST(Address, MappedIPv4IsIPv4) {
  EXPECT_EQ(Address::parse("::ffff:10.0.0.7")->text(), "10.0.0.7");
  EXPECT_TRUE(Address::parse("::ffff:127.0.0.1")->is_loopback());
}

TEST(Address, KnowsLoopbackAndLinkLocal) {
  EXPECT_TRUE(Address::parse("127.0.1.1")->is_loopback());
  EXPECT_TRUE(Address::parse("::1")->is_loopback());
  EXPECT_FALSE(Address::parse("128.0.0.1")->is_loopback());
  EXPECT_TRUE(Address::parse("169.254.3.4")->is_link_local());
  EXPECT_TRUE(Address::parse("fe80::1")->is_link_local());
  EXPECT_FALSE(Address::parse("fec0::1")->is_link_local());
}

TEST(Address, ResolvesNames) {
  const auto found = Address::resolve("localhost:1234");
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_FALSE(found->empty());
  for (const Address& a : *found) EXPECT_TRUE(a.is_loopback() && a.port() == 1234) << a.text();
  const auto missing = Address::resolve("no-such-host.invalid:1");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no-such-host.invalid"), std::string::npos);
  EXPECT_FALSE(Address::resolve("localhost"));  // a port is needed
}

TEST(Socket, MovesBytesBothWaysOverBothFamilies) {
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !has_ipv6()) {
      std::printf("skipped IPv6: this host has none\n");
      continue;
    }
    Pair pair = connected_pair(family);
    const auto sent = pattern(3'000'000);  // more than the buffers of both ends
    std::vector<std::byte> got(sent.size());
    std::thread other([&] { EXPECT_TRUE(pair.b.receive(got, deadline_in(20000))); });
    const Status status = pair.a.send(sent, deadline_in(20000));
    EXPECT_TRUE(status) << status.error().message;
    other.join();
    EXPECT_EQ(got, sent);
    EXPECT_TRUE(pair.b.send(std::span(sent).first(10), deadline_in(5000)));
    EXPECT_TRUE(pair.a.receive(std::span(got).first(10), deadline_in(5000)));
  }
}

TEST(Socket, EveryWaitEndsAtItsDeadline) {
  Pair pair = connected_pair();
  std::vector<std::byte> buffer(16);
  const auto start = Clock::now();
  Status status = pair.a.receive(buffer, deadline_in(50));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::timeout);
  const auto large = pattern(64 << 20);  // nobody reads it
  status = pair.a.send(large, deadline_in(50));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::timeout);
  Result<Listener> listener = Listener::open(Address::loopback(AF_INET));
  const Result<Socket> none = listener->accept(deadline_in(50));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::timeout);
  EXPECT_GE(Clock::now() - start, 150ms);
}

TEST(Socket, ConnectEndsAtItsDeadlineWhenNobodyAnswers) {
  // A listener whose queue is full answers no further request.
  Result<Listener> full = Listener::open(Address::loopback(AF_INET), 0);
  std::vector<Socket> fill;
  Code code = Code::ok;
  for (int i = 0; i < 16 && code != Code::timeout; ++i) {
    Result<Socket> s = Socket::connect(full->address(), deadline_in(50));
    if (s)
      fill.push_back(std::move(*s));
    else
      code = s.error().code;
  }
  EXPECT_EQ(code, Code::timeout);
}

TEST(Socket, DripsDoNotOutlastTheDeadline) {
  Pair pair = connected_pair();
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    const std::byte one{1};
    while (!stop && pair.b.send({&one, 1}, deadline_in(1000))) std::this_thread::yield();
  });
  std::vector<std::byte> buffer(std::size_t{16} << 20);  // never full within the deadline
  const Status status = pair.a.receive(buffer, deadline_in(60));
  stop = true;
  drip.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::timeout);
}

TEST(Socket, ClosedPeerIsAnErrorNotASignal) {
  Pair pair = connected_pair();
  pair.b.close();
  std::vector<std::byte> buffer(1);
  const Status received = pair.a.receive(buffer, deadline_in(1000));
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code, Code::peer_lost);
  Status sent;
  const auto data = pattern(100'000);
  for (int i = 0; i < 100 && sent; ++i) sent = pair.a.send(data, deadline_in(1000));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::peer_lost);
}

TEST(Socket, RefusedConnectionNamesTheAddress) {
  Address free_port;
  {
    Result<Listener> gone = Listener::open(Address::loopback(AF_INET));
    free_port = gone->address();
  }
  const Result<Socket> refused = Socket::connect(free_port, deadline_in(1000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::peer_lost);
  EXPECT_NE(refused.error().message.find(free_port.text()), std::string::npos) << refused.error().message;
}

TEST(Socket, NeverConnectsToItself) {
  // With the source port bound to the destination the kernel connects a socket to itself (simultaneous open).
  Address port;
  {
    Result<Listener> gone = Listener::open(Address::loopback(AF_INET));
    port = gone->address();
  }
  const Result<Socket> self = Socket::connect(port, deadline_in(500), &port);
  ASSERT_FALSE(self);
  EXPECT_EQ(self.error().code, Code::peer_lost) << self.error().message;
}

TEST(Socket, WildcardIPv6ListenerTakesBothFamilies) {
  if (!has_ipv6()) GTEST_SKIP() << "this host has no IPv6";
  Result<Listener> listener = Listener::open(Address::any(AF_INET6));
  ASSERT_TRUE(listener);
  for (const int family : {AF_INET, AF_INET6}) {
    const Result<Socket> s =
        Socket::connect(Address::loopback(family).with_port(listener->address().port()), deadline_in(2000));
    ASSERT_TRUE(s) << s.error().message;
    Address peer;
    ASSERT_TRUE(listener->accept(deadline_in(2000), &peer));
    EXPECT_EQ(peer.family(), family);
  }
}

TEST(Socket, BindsTheGivenSource) {
  Result<Listener> listener = Listener::open(Address::loopback(AF_INET));
  const Address source = *Address::parse("127.0.0.9");
  const Result<Socket> s = Socket::connect(listener->address(), deadline_in(2000), &source);
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->local_address()->with_port(0), source);
}

TEST(Socket, DescriptorsComeAndGo) {
  const auto count = [] {
    int n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
    return n;
  };
  const int before = count();
  for (int i = 0; i < 100; ++i) {
    Pair pair = connected_pair();
    Pair moved = std::move(pair);
    pair = std::move(moved);
    EXPECT_TRUE(pair.a.watch_peer(10));
  }
  EXPECT_EQ(count(), before);
}

// ---- Interfaces ----

Interface interface(const char* name, const char* address, int bits, bool loopback = false) {
  return {name, *Address::parse(address), bits, loopback, 1};
}
const std::vector<Interface> kHost = {
    interface("lo", "127.0.0.1", 8, true),      interface("eth0", "10.0.0.5", 24), interface("eth1", "10.1.0.5", 24),
    interface("docker0", "172.17.0.1", 16),     interface("virbr0", "192.168.122.1", 24),
    interface("eth0", "2001:db8::5", 64),
};

std::string choice(std::span<const Interface> all, std::string_view rule) {
  const auto chosen = choose_interfaces(all, rule);
  if (!chosen) return "error: " + chosen.error().message;
  std::string text;
  for (const Interface& i : *chosen) text += (text.empty() ? "" : " ") + i.name + "=" + i.address.text();
  return text;
}

TEST(Interfaces, DefaultSkipsLoopbackAndBridges) {
  EXPECT_EQ(choice(kHost, ""), "eth0=10.0.0.5 eth1=10.1.0.5 eth0=2001:db8::5");
  const std::vector<Interface> only_bridge = {kHost[0], kHost[3]};
  EXPECT_EQ(choice(only_bridge, ""), "docker0=172.17.0.1");
  EXPECT_EQ(choice(std::span(kHost).first(1), ""), "lo=127.0.0.1");
}

TEST(Interfaces, ExplicitChoiceIsRespectedInItsOrder) {
  EXPECT_EQ(choice(kHost, "eth1,eth0"), "eth1=10.1.0.5 eth0=10.0.0.5 eth0=2001:db8::5");
  EXPECT_EQ(choice(kHost, "docker0"), "docker0=172.17.0.1");
  EXPECT_EQ(choice(kHost, "lo"), "lo=127.0.0.1");
  EXPECT_EQ(choice(kHost, "10.0.0.0/8"), "eth0=10.0.0.5 eth1=10.1.0.5");
  EXPECT_EQ(choice(kHost, "10.1.0.0/16,eth1"), "eth1=10.1.0.5");
  EXPECT_EQ(choice(kHost, "10.1.0.5"), "eth1=10.1.0.5");
  EXPECT_EQ(choice(kHost, "2001:db8::/32"), "eth0=2001:db8::5");
  EXPECT_EQ(choice(kHost, "10.0.0.0/23"), "eth0=10.0.0.5");
  EXPECT_EQ(choice(kHost, "0.0.0.0/0,^127.0.0.0/8,^docker0,^virbr0"), "eth0=10.0.0.5 eth1=10.1.0.5");
}

TEST(Interfaces, ExclusionsTakeFromTheDefault) {
  EXPECT_EQ(choice(kHost, "^eth0"), "eth1=10.1.0.5");
  EXPECT_EQ(choice(kHost, "^2001:db8::/32"), "eth0=10.0.0.5 eth1=10.1.0.5");
  EXPECT_EQ(choice(kHost, "^docker7"), "eth0=10.0.0.5 eth1=10.1.0.5 eth0=2001:db8::5");
  EXPECT_EQ(choice(kHost, "10.0.0.0/8,^eth1"), "eth0=10.0.0.5");
}

TEST(Interfaces, WhatMatchesNothingIsAnErrorThatListsWhatExists) {
  for (const char* rule : {"eth7", "eth0,eth7", "11.0.0.0/8", "10.0.0.0/33", "10.0.0.0/x", "10.0.0/8", "eth0,,eth1", "^",
                           "eth1,^eth1"}) {
    const std::string text = choice(kHost, rule);
    EXPECT_EQ(text.substr(0, 6), "error:") << rule << ": " << text;
    EXPECT_NE(text.find(rule), std::string::npos) << text;
  }
  const std::string text = choice(kHost, "eth7");
  for (const char* word : {"eth7", "lo 127.0.0.1/8", "eth0 10.0.0.5/24", "docker0 172.17.0.1/16", "2001:db8::5/64"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(Interfaces, ThisHostHasLoopback) {
  const auto all = list_interfaces();
  ASSERT_TRUE(all);
  bool found = false;
  for (const Interface& i : *all) {
    found = found || (i.loopback && i.prefix_bits == 8);
    EXPECT_GT(i.index, 0);
    EXPECT_TRUE(i.address.valid());
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(chosen_interfaces());
}

}  // namespace
}  // namespace tamaki
