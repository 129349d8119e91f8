#pragma once
// What travels on a connection once both ends have authenticated: frames of a fixed header, little-endian,
// and the payload of data frames right after it.
//
//   offset  bytes
//        0      4  magic and version: 'T' 'M' 'K' 1
//        4      2  kind (FrameKind)
//        6      2  channel
//        8      4  sequence   data: number of the message in its ring; open: depth of the sender's rings
//       12      4  tag        data: the message's tag; hello: path
//       16      4  bytes      data: payload; open: slot_bytes; hello: 16, the payload is {communicator,
//       from, to} 20      4  consumed   messages of this channel that the sender of the frame has consumed
//       so far
//
//   hello    first frame of the dialling side: which ranks of which communicator this connection joins
//   open     this end of the channel exists; credit for `depth` messages
//   data     one message; only sent when the receiver's ring has a free slot for it
//   credit   nothing but `consumed` (data frames carry it along)
//   goodbye  last frame: the sender has left in good order, the end of the stream that follows is no
//   failure

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tamaki::tcp {

inline constexpr std::uint32_t kMagic = 0x014b4d54;  // "TMK" and version 1
inline constexpr int kMaxChannels = 4096;            // channel numbers are below

enum class FrameKind : std::uint16_t { hello = 1, open, data, credit, goodbye };

struct Frame {
  std::uint32_t magic = kMagic;
  std::uint16_t kind = 0;
  std::uint16_t channel = 0;
  std::uint32_t sequence = 0;
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;
  std::uint32_t consumed = 0;
};
inline constexpr std::size_t kFrameBytes = 24;
static_assert(sizeof(Frame) == kFrameBytes);

struct Hello {
  std::uint64_t communicator = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};
static_assert(sizeof(Hello) == 16);
static_assert(std::endian::native == std::endian::little, "frames are little-endian: swap them here");

}  // namespace tamaki::tcp
