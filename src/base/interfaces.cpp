// The network interfaces of this host and the choice among them (declared in socket.hpp).

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/options.hpp"
#include "base/socket.hpp"

namespace tamaki {
namespace {

struct Network {
  Address address;
  int prefix_bits = 0;

  bool contains(const Address& other) const {
    if (other.family() != address.family()) return false;
    const auto a = address.bytes(), b = other.bytes();
    for (int bit = 0; bit < prefix_bits; bit += 8) {
      const auto at = static_cast<std::size_t>(bit / 8);
      const int used = std::min(8, prefix_bits - bit);
      if ((a[at] ^ b[at]) >> (8 - used) != 0) return false;
    }
    return true;
  }
};

/// A term that starts with a digit or holds a colon is meant as a network or an address.
bool looks_numeric(std::string_view term) {
  return (term.front() >= '0' && term.front() <= '9' && term.find('.') != std::string_view::npos) ||
         term.find(':') != std::string_view::npos || term.find('/') != std::string_view::npos;
}

Result<Network> parse_network(std::string_view term) {
  const auto slash = term.find('/');
  const std::string_view host = term.substr(0, slash);
  Result<Address> address = Address::parse(host.find(':') == host.rfind(':') ? host : "[" + std::string(host) + "]");
  if (!address) return pass(std::move(address));
  const int most = address->family() == AF_INET6 ? 128 : 32;
  int bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view text = term.substr(slash + 1);
    const auto r = std::from_chars(text.data(), text.data() + text.size(), bits);
    if (text.empty() || r.ec != std::errc{} || r.ptr != text.data() + text.size() || bits < 0 || bits > most)
      return fail(Code::invalid_argument, "\"" + std::string(text) + "\" in \"" + std::string(term) +
                                              "\" is not a prefix length 0.." + std::to_string(most));
  }
  return Network{*address, bits};
}

bool is_bridge(std::string_view name) {
  for (const std::string_view prefix :
       {"docker", "br-", "veth", "cni", "flannel", "virbr", "lxcbr", "lxdbr", "podman", "cali", "vnet"})
    if (name.substr(0, prefix.size()) == prefix) return true;
  return false;
}

std::string listing(std::span<const Interface> all) {
  std::string text;
  for (const Interface& i : all)
    text += (text.empty() ? "" : ", ") + i.name + " " + i.address.text() + "/" + std::to_string(i.prefix_bits);
  return text.empty() ? "none" : text;
}

Result<std::vector<Interface>> matches(std::span<const Interface> all, std::string_view term) {
  std::vector<Interface> found;
  if (!looks_numeric(term)) {
    for (const Interface& i : all)
      if (i.name == term) found.push_back(i);
    return found;
  }
  const Result<Network> network = parse_network(term);
  if (!network) return tl::unexpected<Error>(network.error());
  for (const Interface& i : all)
    if (network->contains(i.address)) found.push_back(i);
  return found;
}

bool same(const Interface& a, const Interface& b) { return a.name == b.name && a.address == b.address; }

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return fail_errno("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(raw, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    Interface interface;
    interface.name = entry->ifa_name;
    interface.address = Address(entry->ifa_addr, length);
    // Routed fabrics give a host its address on the loopback device: what counts is whether others can have a route to it.
    interface.loopback = interface.address.is_loopback();
    interface.index = static_cast<int>(::if_nametoindex(entry->ifa_name));
    if (entry->ifa_netmask != nullptr) {
      // The mask's family may be left unset by the system; its bytes are laid out as the address' are.
      sockaddr_storage mask{};
      std::memcpy(&mask, entry->ifa_netmask, length);
      mask.ss_family = static_cast<sa_family_t>(family);
      const Address mask_address(reinterpret_cast<const sockaddr*>(&mask), length);
      for (const std::uint8_t byte : mask_address.bytes()) interface.prefix_bits += std::popcount(byte);
    }
    if (interface.address.is_link_local()) continue;
    all.push_back(std::move(interface));
  }
  std::stable_partition(all.begin(), all.end(), [](const Interface& i) { return i.address.family() == AF_INET; });
  return all;
}

Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> all, std::string_view rule) {
  std::vector<Interface> chosen, excluded;
  bool any_choice = false, any_exclusion = false;
  for (std::string_view rest = rule; !rest.empty();) {
    const auto comma = rest.find(',');
    std::string_view term = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const bool exclude = !term.empty() && term.front() == '^';
    if (exclude) term.remove_prefix(1);
    if (term.empty())
      return fail(Code::invalid_argument, "TAMAKI_INTERFACES=\"" + std::string(rule) +
                                              "\" has an empty entry; entries are names or networks like 10.0.0.0/8");
    Result<std::vector<Interface>> found = matches(all, term);
    if (!found)
      return fail(Code::invalid_argument, "TAMAKI_INTERFACES=\"" + std::string(rule) + "\": " + found.error().message);
    // Excluding what is not there is harmless: one rule then serves hosts that differ.
    if (found->empty() && !exclude)
      return fail(Code::invalid_argument, "TAMAKI_INTERFACES=\"" + std::string(rule) + "\": no interface matches \"" +
                                              std::string(term) + "\"; this host has " + listing(all));
    (exclude ? any_exclusion : any_choice) = true;
    std::vector<Interface>& list = exclude ? excluded : chosen;
    for (Interface& i : *found)
      if (std::ranges::none_of(list, [&](const Interface& o) { return same(i, o); })) list.push_back(std::move(i));
  }
  if (!any_choice) {
    const auto take = [&](auto&& wanted) {
      for (const Interface& i : all)
        if (wanted(i) && std::ranges::none_of(excluded, [&](const Interface& o) { return same(i, o); }))
          chosen.push_back(i);
    };
    take([](const Interface& i) { return !i.loopback && !is_bridge(i.name); });
    if (chosen.empty()) take([](const Interface& i) { return !i.loopback; });
    if (chosen.empty()) take([](const Interface&) { return true; });
  } else {
    std::erase_if(chosen, [&](const Interface& i) {
      return std::ranges::any_of(excluded, [&](const Interface& o) { return same(i, o); });
    });
  }
  if (chosen.empty())
    return fail(any_exclusion ? Code::invalid_argument : Code::system,
                (rule.empty() ? std::string("no network interface is up")
                              : "TAMAKI_INTERFACES=\"" + std::string(rule) + "\" leaves no interface") +
                    "; this host has " + listing(all));
  return chosen;
}

Result<std::vector<Interface>> chosen_interfaces() {
  const Result<const Options*> current = options();
  if (!current) return tl::unexpected<Error>(current.error());
  const Result<std::vector<Interface>> all = list_interfaces();
  if (!all) return tl::unexpected<Error>(all.error());
  return choose_interfaces(*all, (*current)->interfaces);
}

}  // namespace tamaki
