#pragma once
// Which addresses of two ranks belong together. Each pair is a path, and the channels (lanes) of the two
// ranks are spread over their paths. Both ranks compute the same list from the same exchanged records.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace tamaki::tcp {

inline constexpr int kMaxAddresses = 8;  // that a rank offers

/// One address that a rank listens on. Exchanged as bytes: no padding, no pointers.
struct OfferedAddress {
  std::uint8_t family = 0;     // 4 or 6
  std::uint8_t prefix = 0;     // bits of the subnet
  std::uint16_t port = 0;      // host byte order
  std::uint8_t interface = 0;  // ordinal of the interface among those the rank offers
  std::uint8_t loopback = 0;   // 1: reaches this host only
  std::uint16_t unused = 0;
  std::array<std::uint8_t, 16> bytes{};  // network byte order; the first 4 for IPv4
};
static_assert(sizeof(OfferedAddress) == 24 && std::is_trivially_copyable_v<OfferedAddress>);

/// What a rank contributes to the exchange of setup. `count` 0: the rank cannot use tcp.
struct OfferedAddresses {
  std::uint32_t count = 0;
  std::uint32_t unused = 0;
  std::array<OfferedAddress, kMaxAddresses> addresses{};
};
static_assert(std::is_trivially_copyable_v<OfferedAddresses>);

/// Indices into the two ranks' offered addresses.
struct Path {
  std::uint8_t low = 0;   // address of the lower rank
  std::uint8_t high = 0;  // address of the higher rank
};

/// The paths between two ranks, at most one for each pair of interfaces; empty where no two addresses fit
/// together. Addresses of one subnet come together, each interface at most once; only where no subnet is
/// common are interfaces joined by their order (routed rails), the shorter list cyclically. Loopback
/// addresses fit on the same host only. Records of other ranks come from the network: counts beyond
/// kMaxAddresses are cut.
std::vector<Path> pair_addresses(const OfferedAddresses& low, const OfferedAddresses& high, bool same_host);

/// "10.0.0.1:4711", "[fd00::1]:4711".
std::string to_text(const OfferedAddress& address);

}  // namespace tamaki::tcp
