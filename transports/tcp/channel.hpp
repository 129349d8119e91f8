#pragma once
// The two rings of a link and the transport's ends of them. The executor produces into link.out and
// consumes link.in; the transport consumes what departs and produces what arrives.
//
//   executor --link.out--> departing --socket--> arriving --link.in--> executor of the peer
//
// A slot of the out ring is free again as soon as the kernel has its bytes. The peer's ring is guarded end
// to end: a data frame leaves only while fewer than `depth` messages are sent and not yet consumed by the
// peer's executor, so whatever arrives has its slot and one stalled channel never stops the reading of
// another.
//
// Where a pair of ranks has several connections, a channel is at home on one, and any other may carry a message of it
// while the home takes no more. Messages may then arrive, and leave their slots, in another order than they were
// committed in; the executors at both ends see them in order all the same, by their sequence numbers.

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "transports/transport.hpp"

namespace tamaki::tcp {

/// Zeroed pages, materialized at first touch.
class RingMemory {
 public:
  static Result<RingMemory> map(std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      return fail(Code::out_of_memory,
                  "tcp: no " + std::to_string(bytes) + " bytes for the rings of a link");
    return RingMemory(static_cast<std::byte*>(at), bytes);
  }
  RingMemory(RingMemory&& other) noexcept : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
  RingMemory& operator=(RingMemory&&) = delete;
  ~RingMemory() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }
  std::byte* data() const { return at_; }

 private:
  RingMemory(std::byte* at, std::size_t bytes) : at_(at), bytes_(bytes) {}
  std::byte* at_;
  std::size_t bytes_;
};

struct Channel;
class Connection;

/// What the executor sees, and the way back from it.
struct OwnedLink : Link {
  Channel* owner = nullptr;
};

struct Channel {
  Channel(RingMemory ring_memory, std::size_t slot_bytes, std::uint32_t depth)
      : memory(std::move(ring_memory)),
        departing(memory.data(), slot_bytes, depth, false),
        arriving(memory.data() + ring_bytes(slot_bytes, depth), slot_bytes, depth, false) {
    link.out = departing;
    link.in = arriving;
    link.slot_bytes = slot_bytes;
    link.needs_flush = true;
    link.owner = this;
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  std::uint32_t depth() const { return departing.mask + 1; }
  std::uint32_t consumed() const { return link.in.credit->consumed.load(std::memory_order_acquire); }
  /// The executor has committed message number `sequence`.
  bool committed(std::uint32_t sequence) const {
    return static_cast<std::uint32_t>(departing.header(sequence)->flag.load(std::memory_order_acquire)) ==
           sequence;
  }
  /// The peer's ring has a slot for message number `sequence`.
  bool granted(std::uint32_t sequence) const { return peer_open && sequence - 1 - peer_consumed < depth(); }

  /// The kernel has all of message number `sequence`: its slot is free, once those before it are.
  void handed_over(std::uint32_t sequence) {
    gone |= bit(sequence);
    for (; (gone & bit(departing.next)) != 0; departing.release()) gone &= ~bit(departing.next);
  }
  /// Message number `sequence` may come now: it has a slot and has not come before.
  bool expects(std::uint32_t sequence) const {
    return sequence - 1 - consumed() < depth() &&
           static_cast<std::uint32_t>(arriving.header(sequence)->flag.load(std::memory_order_relaxed)) != sequence;
  }
  std::byte* place_for(std::uint32_t sequence) const { return arriving.slot(sequence) + kLine; }
  /// All of message number `sequence` lies in its place: the executor may have it.
  void deliver(std::uint32_t sequence, std::uint32_t tag, std::uint32_t bytes) {
    SlotHeader& slot = *arriving.header(sequence);
    slot.bytes = bytes;
    slot.kind = MessageKind::slot;
    slot.source = {};
    slot.output = {};
    slot.flag.store(RingEnd::flag_of(tag, sequence), std::memory_order_release);  // pairs with RingEnd::arrived()
    ++received;
  }

  static constexpr std::uint32_t kMaxDepth = 64;  // bits of `gone`
  std::uint64_t bit(std::uint32_t sequence) const { return std::uint64_t{1} << (sequence & departing.mask); }

  RingMemory memory;
  OwnedLink link;
  RingEnd departing;                // next: first message not handed over to the kernel
  RingEnd arriving;                 // places only
  std::uint64_t gone = 0;           // by slot: handed over, while one before it is not
  std::uint32_t received = 0;       // messages of the peer that have come
  std::uint32_t taken = 1;          // first message that is in no frame yet; >= departing.next
  std::uint32_t peer_consumed = 0;  // of our messages, as last heard
  std::uint32_t told = 0;           // of the peer's messages, as last said
  bool open_due = true;             // our open frame has not been made yet
  bool peer_open = false;           // the peer's open frame has come
  Connection* home = nullptr;       // that sends its open frame and credits, and its messages as long as it can
  void* carrier = nullptr;  // what its connection belongs to (TcpTransport::Watched); null: none yet
  bool active = false;      // in its connection's list of channels to look at
};

}  // namespace tamaki::tcp
