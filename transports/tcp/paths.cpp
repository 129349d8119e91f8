#include "transports/tcp/paths.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <bitset>

namespace tamaki::tcp {
namespace {

std::uint32_t count_of(const OfferedAddresses& offer) {
  return std::min<std::uint32_t>(offer.count, kMaxAddresses);
}

bool fit(const OfferedAddress& a, const OfferedAddress& b, bool same_host) {
  if (a.family != b.family || a.loopback != b.loopback) return false;
  // The same address on two hosts (of a bridge, of a local service) leads each of them to itself.
  return same_host || (a.loopback == 0 && a.bytes != b.bytes);
}

bool same_subnet(const OfferedAddress& a, const OfferedAddress& b) {
  const int width = a.family == 4 ? 32 : 128;
  if (a.prefix != b.prefix || a.prefix > width) return false;
  for (int bit = 0; bit < a.prefix; bit += 8) {
    const int rest = std::min(8, a.prefix - bit);
    const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
    if (((a.bytes[static_cast<std::size_t>(bit / 8)] ^ b.bytes[static_cast<std::size_t>(bit / 8)]) &
         mask) != 0)
      return false;
  }
  return true;
}

/// A network of one address: the host's own in a routed fabric, to which all others have a route.
bool host_route(const OfferedAddress& address) { return address.prefix == (address.family == 4 ? 32 : 128); }

/// First address of `family` of each interface that `wanted` likes, in order.
template <class Wanted>
std::vector<std::uint8_t> one_each(const OfferedAddresses& offer, int family, Wanted&& wanted) {
  std::vector<std::uint8_t> found;
  std::bitset<256> seen;
  for (std::uint32_t i = 0; i < count_of(offer); ++i) {
    const OfferedAddress& address = offer.addresses[i];
    if (address.family != family || address.loopback != 0 || seen[address.interface] || !wanted(address)) continue;
    seen[address.interface] = true;
    found.push_back(static_cast<std::uint8_t>(i));
  }
  return found;
}

}  // namespace

std::vector<Path> pair_addresses(const OfferedAddresses& low, const OfferedAddresses& high,
                                 bool same_host) {
  std::vector<Path> paths;
  std::bitset<256> used_low, used_high;  // interfaces
  for (std::uint32_t i = 0; i < count_of(low); ++i) {
    for (std::uint32_t j = 0; j < count_of(high); ++j) {
      const OfferedAddress& a = low.addresses[i];
      const OfferedAddress& b = high.addresses[j];
      if (used_low[a.interface] || used_high[b.interface] || !fit(a, b, same_host) || !same_subnet(a, b))
        continue;
      used_low[a.interface] = used_high[b.interface] = true;
      paths.push_back({static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(j)});
    }
  }
  if (!paths.empty()) return paths;
  // No network in common: by way of routers. Addresses of links between two routers may not be known beyond them.
  const auto pair = [&](int family, auto&& wanted) {
    const auto a = one_each(low, family, wanted);
    const auto b = one_each(high, family, wanted);
    if (a.empty() || b.empty()) return;
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i)
      if (const Path path{a[i % a.size()], b[i % b.size()]}; fit(low.addresses[path.low], high.addresses[path.high], same_host))
        paths.push_back(path);
  };
  for (const int family : {4, 6}) {
    pair(family, host_route);
    if (paths.empty()) pair(family, [](const OfferedAddress& address) { return !host_route(address); });
    if (paths.empty()) pair(family, [](const OfferedAddress&) { return true; });
    if (!paths.empty()) break;
  }
  return paths;
}

std::string to_text(const OfferedAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes.data(), text, sizeof text);
  const std::string port = std::to_string(address.port);
  return address.family == 4 ? std::string(text) + ":" + port : "[" + std::string(text) + "]:" + port;
}

}  // namespace tamaki::tcp
