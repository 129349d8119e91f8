#include "transports/tcp/paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/socket.hpp"

namespace tamaki::tcp {
namespace {

/// "eth number, address/prefix" in order.
OfferedAddresses offer(std::initializer_list<std::pair<int, const char*>> list) {
  OfferedAddresses offered;
  for (const auto& [interface, text] : list) {
    const std::string_view whole(text);
    const auto slash = whole.find('/');
    const Result<Address> address = Address::parse("[" + std::string(whole.substr(0, slash)) + "]");
    EXPECT_TRUE(address) << text;
    OfferedAddress& out = offered.addresses[offered.count++];
    out.family = address->family() == AF_INET ? 4 : 6;
    out.prefix = static_cast<std::uint8_t>(std::stoi(std::string(whole.substr(slash + 1))));
    out.interface = static_cast<std::uint8_t>(interface);
    out.loopback = address->is_loopback() ? 1 : 0;
    std::ranges::copy(address->bytes(), out.bytes.begin());
  }
  return offered;
}

std::string pairs(const OfferedAddresses& low, const OfferedAddresses& high, bool same_host = false) {
  std::string text;
  for (const Path& path : pair_addresses(low, high, same_host))
    text += (text.empty() ? "" : " ") + std::to_string(path.low) + "-" + std::to_string(path.high);
  return text;
}

TEST(TcpPaths, PairsBySubnetWhateverTheOrder) {
  EXPECT_EQ(pairs(offer({{0, "10.0.0.1/24"}, {1, "10.0.1.1/24"}}),
                  offer({{0, "10.0.1.2/24"}, {1, "10.0.0.2/24"}})),
            "0-1 1-0");
  EXPECT_EQ(pairs(offer({{0, "10.0.0.1/24"}, {1, "10.0.1.1/24"}}), offer({{0, "10.0.0.2/24"}})), "0-0");
  EXPECT_EQ(pairs(offer({{0, "172.16.5.1/20"}}), offer({{0, "172.16.15.254/20"}})), "0-0");
}

TEST(TcpPaths, UsesAnInterfaceOnce) {
  // Two addresses of either family on one interface are one path, not two.
  const auto both = offer({{0, "10.0.0.1/24"}, {0, "fd00::1/64"}});
  EXPECT_EQ(pairs(both, offer({{0, "10.0.0.2/24"}, {0, "fd00::2/64"}})), "0-0");
  EXPECT_EQ(pairs(both, offer({{0, "fd00::2/64"}})), "1-0");
  // Several interfaces in one subnet pair off.
  EXPECT_EQ(pairs(offer({{0, "10.0.0.1/24"}, {1, "10.0.0.3/24"}}),
                  offer({{0, "10.0.0.2/24"}, {1, "10.0.0.4/24"}})),
            "0-0 1-1");
}

TEST(TcpPaths, JoinsRoutedRailsByTheirOrder) {
  const auto two = offer({{0, "10.0.0.1/31"}, {1, "10.0.1.1/31"}});
  EXPECT_EQ(pairs(two, offer({{0, "10.8.0.1/31"}, {1, "10.8.1.1/31"}})), "0-0 1-1");
  EXPECT_EQ(pairs(two, offer({{0, "10.8.0.1/31"}})), "0-0 1-0");
  EXPECT_EQ(pairs(offer({{0, "10.8.0.1/32"}}), two), "0-0 0-1");
  EXPECT_EQ(pairs(offer({{0, "10.0.0.1/24"}, {1, "fd00:1::1/64"}}), offer({{0, "fd00:2::1/64"}})), "1-0")
      << "common family";
}

TEST(TcpPaths, PrefersAddressesThatAreRoutedOverThoseOfLinks) {
  // A torus of hosts: links of their own between neighbours, and an address a host that the others have a route to.
  const auto host = offer({{0, "10.96.0.1/32"}, {1, "10.97.0.1/30"}, {2, "10.97.0.5/30"}});
  EXPECT_EQ(pairs(host, offer({{0, "10.96.0.2/32"}, {1, "10.97.0.2/30"}, {2, "10.97.0.9/30"}})), "1-1") << "neighbours";
  EXPECT_EQ(pairs(host, offer({{0, "10.96.0.4/32"}, {1, "10.97.0.10/30"}})), "0-0") << "others";
}

TEST(TcpPaths, NeverPairsAnAddressWithItself) {
  const auto host = offer({{0, "10.255.255.254/32"}, {1, "10.0.0.1/24"}});
  EXPECT_EQ(pairs(host, offer({{0, "10.255.255.254/32"}, {1, "10.0.0.2/24"}})), "1-1");
  EXPECT_EQ(pairs(host, offer({{0, "10.255.255.254/32"}, {1, "10.0.1.2/24"}})), "1-1");
  EXPECT_EQ(pairs(host, offer({{0, "10.255.255.254/32"}})), "1-0");
}

TEST(TcpPaths, KeepsLoopbackOnItsHost) {
  const auto lo = offer({{0, "127.0.0.1/8"}, {0, "::1/128"}});
  EXPECT_EQ(pairs(lo, lo, true), "0-0");
  EXPECT_EQ(pairs(lo, lo, false), "");
  EXPECT_EQ(pairs(lo, offer({{0, "10.0.0.1/24"}}), true), "");
}

TEST(TcpPaths, FindsNothingWhereNothingFits) {
  EXPECT_EQ(pairs({}, offer({{0, "10.0.0.1/24"}})), "");
  EXPECT_EQ(pairs(offer({{0, "10.0.0.1/24"}}), offer({{0, "fd00::1/64"}})), "");
}

TEST(TcpPaths, CutsCountsThatCannotBe) {
  auto wild = offer({{0, "10.0.0.1/24"}});
  wild.count = 0xffffffffu;
  EXPECT_EQ(pairs(wild, offer({{0, "10.0.0.2/24"}})), "0-0");
}

TEST(TcpPaths, ShowsAddresses) {
  auto shown = offer({{0, "10.0.0.1/24"}, {0, "fd00::1/64"}});
  shown.addresses[0].port = shown.addresses[1].port = 81;
  EXPECT_EQ(to_text(shown.addresses[0]), "10.0.0.1:81");
  EXPECT_EQ(to_text(shown.addresses[1]), "[fd00::1]:81");
}

}  // namespace
}  // namespace tamaki::tcp
