#pragma once
// Plain values in byte strings, as the control plane sends them: little-endian, no padding, lengths always checked.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/socket.hpp"

namespace tamaki::bootstrap {

static_assert(std::endian::native == std::endian::little, "byte order of the wire");

class Writer {
 public:
  template <class T>
  Writer& put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    return *this;
  }
  Writer& put_bytes(std::span<const std::byte> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return *this;
  }
  Writer& put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    return put_bytes(std::as_bytes(std::span(text)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a Writer wrote. After a read beyond the end everything reads as zero and ok() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    T value{};
    const std::span<const std::byte> raw = get_bytes(sizeof value);
    if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> get_bytes(std::size_t n) {
    if (n > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  std::string get_text() {
    const auto raw = get_bytes(get<std::uint32_t>());
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  std::span<const std::byte> rest() const { return rest_; }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

/// Where a process listens: up to four addresses, best first. Encoded in exactly kBytes bytes.
struct AddressSet {
  static constexpr std::size_t kMost = 4;
  static constexpr std::size_t kBytes = kMost * Address::kEncodedBytes;
  std::vector<Address> addresses;

  std::vector<std::byte> encode() const {
    std::vector<std::byte> out(kBytes);
    for (std::size_t i = 0; i < addresses.size() && i < kMost; ++i) {
      const auto one = addresses[i].encode();
      std::copy(one.begin(), one.end(), out.begin() + static_cast<std::ptrdiff_t>(i * one.size()));
    }
    return out;
  }
  /// Entries that are no addresses are left out.
  static AddressSet decode(std::span<const std::byte> bytes) {
    AddressSet set;
    for (std::size_t i = 0; i < kMost && (i + 1) * Address::kEncodedBytes <= bytes.size(); ++i)
      if (const auto one = Address::decode(
              bytes.subspan(i * Address::kEncodedBytes).first<Address::kEncodedBytes>()))
        set.addresses.push_back(*one);
    return set;
  }
  std::string text() const {
    std::string out;
    for (const Address& a : addresses) out += (out.empty() ? "" : " or ") + a.text();
    return out.empty() ? "no address" : out;
  }
};

}  // namespace tamaki::bootstrap
