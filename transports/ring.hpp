#pragma once
// One direction of a connection: a FIFO of slots with credits, in memory that both its ends can reach.
//
//   slot     64-byte header line, then `slot_bytes` of payload. Slot i of message number n is n mod depth.
//   flag     last word of the header line: (tag << 32) | sequence. The sender stores it last (release), the receiver
//            polls it (acquire): the message is its own arrival signal, no index is shared on the way.
//   mailbox  messages of at most kMailboxBytes have no header: they lie in lines of 56 bytes data + flag each, so a
//            message of one line costs one cache-line transfer.
//   credit   the receiver counts messages consumed in a line of its own; the sender reads that line only when its
//            last reading leaves no free slot. Mailbox messages are counted every depth/2, all others at once.
//
// The tag is a digest of what both ranks believe they are doing; a message whose sequence fits and whose tag does not
// is a disagreement between ranks (tmkMismatch), found without any extra traffic.
//
// Single producer, single consumer. For transports whose memory is not common to both ranks (tcp, verbs) the ring is
// local, and the transport is the other end of it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bell.hpp"
#include "base/shared_region.hpp"

namespace tamaki {

inline constexpr std::size_t kLineData = 56;
inline constexpr std::size_t kMailboxLines = 10;
inline constexpr std::size_t kMailboxBytes = kMailboxLines * kLineData;  // 560

enum class MessageKind : std::uint32_t {
  slot,    // payload follows the header line
  pull,    // payload lies at `address` of the sender, valid until consumed; no payload in the slot
  pushed,  // payload is already where the receiver's step wants it
};

struct SlotHeader {
  std::uint32_t bytes = 0;
  MessageKind kind = MessageKind::slot;
  MemoryName source;   // pull: where the payload lies
  MemoryName output;   // the sender's output buffer of this operation, for pushes to it (address 0: not offered)
  std::atomic<std::uint64_t> flag{0};
};
static_assert(sizeof(SlotHeader) == kLine && offsetof(SlotHeader, flag) == kLineData);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct alignas(kLine) Credit {
  std::atomic<std::uint32_t> consumed{0};
};

/// Bytes of ring memory: credit line, then slots.
constexpr std::size_t ring_stride(std::size_t slot_bytes) {
  return kLine + (slot_bytes < (kMailboxLines - 1) * kLine ? (kMailboxLines - 1) * kLine
                                                           : (slot_bytes + kLine - 1) / kLine * kLine);
}
constexpr std::size_t ring_bytes(std::size_t slot_bytes, std::uint32_t depth) {
  return kLine + ring_stride(slot_bytes) * depth;
}

/// One end's view of a ring (sender's or receiver's; the members of the other role are unused). `memory` must be
/// zeroed before either end is used. depth is a power of two >= 2.
struct RingEnd {
  std::byte* slots = nullptr;
  Credit* credit = nullptr;
  std::size_t stride = 0;
  std::uint32_t mask = 0;        // depth - 1
  std::uint32_t next = 1;        // sequence number of the next message to send or receive
  std::uint32_t credited = 0;    // sender: last reading of consumed; receiver: last value stored
  bool mailbox = false;          // small messages may use the mailbox format

  RingEnd() = default;
  RingEnd(std::byte* memory, std::size_t slot_bytes, std::uint32_t depth, bool mailbox_allowed)
      : slots(memory + kLine), credit(reinterpret_cast<Credit*>(memory)), stride(ring_stride(slot_bytes)),
        mask(depth - 1), mailbox(mailbox_allowed) {}

  std::byte* slot(std::uint32_t sequence) const { return slots + (sequence & mask) * stride; }
  SlotHeader* header(std::uint32_t sequence) const { return reinterpret_cast<SlotHeader*>(slot(sequence)); }
  static std::uint64_t flag_of(std::uint32_t tag, std::uint32_t sequence) {
    return std::uint64_t{tag} << 32 | sequence;
  }

  /// memcpy of at most kLineData bytes without a call: the sizes of most small messages are single words.
  static void copy_part(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 8) std::memcpy(to, from, 8);
    else if (bytes == 4) std::memcpy(to, from, 4);
    else std::memcpy(to, from, bytes);
  }

  // ---- sender ----
  bool can_send() {
    const std::uint32_t outstanding = next - 1 - credited;
    if (outstanding <= mask) {
      // The line travels while there is still credit for two messages, not when there is none.
      if (outstanding == mask - 1) __builtin_prefetch(credit);
      return true;
    }
    credited = credit->consumed.load(std::memory_order_acquire);  // pairs with release() / release_mailbox()
    return next - 1 - credited <= mask;
  }
  std::byte* payload() const { return slot(next) + kLine; }
  SlotHeader* outgoing() const { return header(next); }
  /// Publishes the message whose header and payload are in place.
  void commit(std::uint32_t tag) {
    header(next)->flag.store(flag_of(tag, next), std::memory_order_release);  // pairs with arrived()
    ++next;
  }
  /// Writes and publishes a message of `bytes` <= kMailboxBytes. Full lines are copied with a constant size: the length
  /// of a message is not known to the compiler, that of a line is.
  void send_mailbox(const std::byte* data, std::size_t bytes, std::uint32_t tag) {
    std::byte* line = slot(next);
    const std::uint64_t flag = flag_of(tag, next);
    for (; bytes > kLineData; bytes -= kLineData, data += kLineData, line += kLine) {
      std::memcpy(line, data, kLineData);
      reinterpret_cast<SlotHeader*>(line)->flag.store(flag, std::memory_order_release);  // pairs with arrived()
    }
    copy_part(line, data, bytes);
    reinterpret_cast<SlotHeader*>(line)->flag.store(flag, std::memory_order_release);
    ++next;
  }
  /// Everything sent so far has been consumed.
  bool drained() {
    credited = credit->consumed.load(std::memory_order_acquire);
    return credited == next - 1;
  }

  // ---- receiver ----
  enum class Arrival { none, here, mismatch };
  Arrival arrived(std::uint32_t tag) const {
    const std::uint64_t flag = header(next)->flag.load(std::memory_order_acquire);  // pairs with commit()
    if (flag == flag_of(tag, next)) return Arrival::here;
    return static_cast<std::uint32_t>(flag) == next && flag != 0 ? Arrival::mismatch : Arrival::none;
  }
  /// The mailbox message whose first line has arrived: copies it out, waiting for its other lines (they follow at
  /// once: the sender writes all lines without interruption by anything but the scheduler). False: not all here yet.
  bool receive_mailbox(std::byte* data, std::size_t bytes, std::uint32_t tag) const {
    const std::byte* line = slot(next);
    const std::uint64_t flag = flag_of(tag, next);
    for (; bytes > kLineData; bytes -= kLineData, data += kLineData, line += kLine) {
      if (reinterpret_cast<const SlotHeader*>(line)->flag.load(std::memory_order_acquire) != flag) return false;
      std::memcpy(data, line, kLineData);
    }
    if (reinterpret_cast<const SlotHeader*>(line)->flag.load(std::memory_order_acquire) != flag) return false;
    copy_part(data, line, bytes);
    return true;
  }
  const SlotHeader* incoming() const { return header(next); }
  const std::byte* incoming_payload() const { return slot(next) + kLine; }
  void release() {
    credit->consumed.store(next, std::memory_order_release);  // pairs with can_send(), drained()
    credited = next++;
  }
  void release_mailbox() {
    if (next - credited > mask / 2) return release();
    ++next;
  }
};

}  // namespace tamaki
