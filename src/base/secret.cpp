#include "base/secret.hpp"

#include <sodium.h>

#include <cstring>

namespace tamaki {
namespace {

void prepare() {
  if (::sodium_init() < 0) return;  // once a process, from any thread; only chooses faster code, a failure changes nothing
}

}  // namespace

Secret random_secret() {
  prepare();
  Secret secret;
  ::randombytes_buf(secret.data(), secret.size());
  return secret;
}

std::uint64_t random_number() {
  prepare();
  std::uint64_t value;
  ::randombytes_buf(&value, sizeof value);
  return value;
}

Secret derive_secret(std::string_view text, std::string_view label) {
  prepare();
  Secret secret;
  crypto_generichash_state state;
  const std::uint64_t label_bytes = label.size();  // so that no two pairs of label and text read the same
  const auto add = [&](const void* data, std::size_t bytes) {
    ::crypto_generichash_update(&state, static_cast<const unsigned char*>(data), bytes);
  };
  ::crypto_generichash_init(&state, nullptr, 0, secret.size());
  add(&label_bytes, sizeof label_bytes);
  add(label.data(), label.size());
  add(text.data(), text.size());
  ::crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(secret.data()), secret.size());
  ::sodium_memzero(&state, sizeof state);
  return secret;
}

Secret derive_secret(std::span<const std::byte> secret, std::string_view label) {
  return derive_secret(std::string_view(reinterpret_cast<const char*>(secret.data()), secret.size()), label);
}

std::uint64_t digest_of(std::string_view text) {
  const Secret hash = derive_secret(text, "digest");
  std::uint64_t value;
  std::memcpy(&value, hash.data(), sizeof value);
  return value;
}

void wipe(std::span<std::byte> memory) { ::sodium_memzero(memory.data(), memory.size()); }

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text += digits[static_cast<unsigned>(b) >> 4];
    text += digits[static_cast<unsigned>(b) & 15];
  }
  return text;
}

bool from_hex(std::string_view text, std::span<std::byte> bytes) {
  if (text.size() != bytes.size() * 2) return false;
  const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = value(text[2 * i]), low = value(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}  // namespace tamaki
