#pragma once
// Proof, both ways, that the two ends of a fresh connection know the job's secret, before either reads
// anything else. A state machine without a socket, so that blocking and non-blocking callers share it.
//
//   dialled  -> accepted   magic (8 bytes), nonce d (32), MAC("hello", d)
//   accepted -> dialled    nonce a (32), MAC("accepted", d, a)
//   dialled  -> accepted   MAC("dialled", d, a)
//
// MAC is keyed BLAKE2b, 32 bytes, with the secret as key. Whoever cannot make the first message gets no
// answer; who replays one learns nothing and fails at the third.

#include <array>
#include <cstddef>
#include <span>

#include "base/result.hpp"

namespace tamaki {

class Handshake {
 public:
  enum class Role { dialled, accepted };
  /// `secret`: 16..64 bytes, copied.
  Handshake(Role role, std::span<const std::byte> secret);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// Bytes to send now; empty: none. Send them before receiving more.
  std::span<const std::byte> outgoing() const {
    return std::span(out_).subspan(out_at_, out_end_ - out_at_);
  }
  void sent(std::size_t bytes) { out_at_ += bytes; }
  /// Where the next bytes of the peer belong, never more than the handshake's own; empty: none is due.
  std::span<std::byte> room() { return std::span(in_).subspan(in_at_, in_end_ - in_at_); }
  /// `bytes` of room() are filled. invalid_usage: the peer does not know the secret; close without an
  /// answer.
  Status received(std::size_t bytes);
  /// The peer has proved itself and everything is sent.
  bool done() const { return !refused_ && in_at_ == in_end_ && out_at_ == out_end_; }

 private:
  static constexpr std::size_t kMagicBytes = 8, kNonceBytes = 32, kMacBytes = 32;
  using Mac = std::array<std::byte, kMacBytes>;
  Mac mac(char purpose) const;
  void answer();

  Role role_;
  std::array<std::byte, 64> secret_{};
  std::size_t secret_bytes_ = 0;
  std::array<std::byte, kNonceBytes> dialled_nonce_{}, accepted_nonce_{};
  std::array<std::byte, kMagicBytes + kNonceBytes + kMacBytes> in_{}, out_{};
  std::size_t in_at_ = 0, in_end_ = 0, out_at_ = 0, out_end_ = 0;
  int messages_in_ = 0;
  bool refused_ = false;
};

}  // namespace tamaki
