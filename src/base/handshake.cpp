#include "base/handshake.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace tamaki {
namespace {

constexpr char kMagic[9] = "TMKHAND1";

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(value));
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Handshake::Handshake(Role role, std::span<const std::byte> secret)
    : role_(role), secret_bytes_(std::min(secret.size(), secret_.size())) {
  std::memcpy(secret_.data(), secret.data(), secret_bytes_);
  [[maybe_unused]] const int ready = sodium_init();  // once a process; only chooses faster code, may fail
  auto& nonce = role == Role::dialled ? dialled_nonce_ : accepted_nonce_;
  randombytes_buf(nonce.data(), nonce.size());
  if (role == Role::accepted) {
    in_end_ = in_.size();
    return;
  }
  std::memcpy(out_.data(), kMagic, kMagicBytes);
  std::memcpy(out_.data() + kMagicBytes, nonce.data(), kNonceBytes);
  const Mac proof = mac('h');
  std::memcpy(out_.data() + kMagicBytes + kNonceBytes, proof.data(), kMacBytes);
  out_end_ = out_.size();
  in_end_ = kNonceBytes + kMacBytes;
}

Handshake::~Handshake() { sodium_memzero(secret_.data(), secret_.size()); }

Handshake::Mac Handshake::mac(char purpose) const {
  std::array<unsigned char, 1 + 2 * kNonceBytes> text{};
  text[0] = static_cast<unsigned char>(purpose);
  std::memcpy(text.data() + 1, dialled_nonce_.data(), kNonceBytes);
  // The first message is made before the other nonce is known.
  if (purpose != 'h') std::memcpy(text.data() + 1 + kNonceBytes, accepted_nonce_.data(), kNonceBytes);
  Mac out{};
  // Fails only for lengths out of range; then no proof may ever compare equal.
  if (crypto_generichash(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                         reinterpret_cast<const unsigned char*>(secret_.data()), secret_bytes_) != 0)
    randombytes_buf(out.data(), out.size());
  return out;
}

void Handshake::answer() {
  out_at_ = 0;
  out_end_ = 0;
  if (role_ == Role::accepted) {
    std::memcpy(out_.data(), accepted_nonce_.data(), kNonceBytes);
    out_end_ = kNonceBytes;
  }
  const Mac proof = mac(role_ == Role::accepted ? 'a' : 'd');
  std::memcpy(out_.data() + out_end_, proof.data(), kMacBytes);
  out_end_ += kMacBytes;
}

Status Handshake::received(std::size_t bytes) {
  in_at_ += bytes;
  const auto stranger = [this] {
    refused_ = true;
    return fail(Code::invalid_usage, "the other end does not know the job's secret", Scope::connection);
  };
  const std::span<const std::byte> in(in_);
  if (role_ == Role::accepted && messages_in_ == 0) {
    const std::size_t seen = std::min(in_at_, kMagicBytes);
    if (std::memcmp(in_.data(), kMagic, seen) != 0)
      return stranger();  // a port scan: no need to wait for the rest
  }
  if (in_at_ != in_end_) return {};
  ++messages_in_;
  if (role_ == Role::dialled) {
    std::memcpy(accepted_nonce_.data(), in_.data(), kNonceBytes);
    if (!equal(in.subspan(kNonceBytes, kMacBytes), bytes_of(mac('a')))) return stranger();
    answer();
  } else if (messages_in_ == 1) {
    std::memcpy(dialled_nonce_.data(), in_.data() + kMagicBytes, kNonceBytes);
    if (!equal(in.subspan(kMagicBytes + kNonceBytes, kMacBytes), bytes_of(mac('h')))) return stranger();
    answer();
    in_at_ = 0;
    in_end_ = kMacBytes;
  } else if (!equal(in.first(kMacBytes), bytes_of(mac('d')))) {
    return stranger();
  }
  return {};
}

}  // namespace tamaki
