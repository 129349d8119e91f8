#pragma once
// What the launcher and the agents on its hosts say to each other, over the agent's stdin and stdout.
//
//   frame   kind (1 byte), stream (1 byte), two bytes 0, rank (4 bytes), length (4 bytes), payload; little endian
//
//   to the agent    job     text of an AgentJob, see agent.hpp; first frame
//                   start   payload: "NAME=text" lines that complete every rank's environment; ranks start
//                   input   bytes for stdin of rank 0;  input_end: no more of them
//                   signal  rank: signal number, for every rank that lives
//   from the agent  ready   rank: a free TCP port on its host
//                   output  bytes of `rank`'s stdout (stream 1) or stderr (stream 2)
//                   taken   rank: number of bytes of input that rank 0 has taken (credit)
//                   exited  rank ended; payload: wait status as decimal text
//                   failed  the agent could not do its part; payload says why
// The end of its stdin tells an agent that the launcher is gone: it kills what it started.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tamaki::tools {

enum class FrameKind : std::uint8_t { job = 1, start, input, input_end, signal, ready, output, taken, exited, failed };

struct Frame {
  FrameKind kind = FrameKind::job;
  std::uint8_t stream = 0;
  std::int32_t rank = 0;
  std::string payload;
};

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kLargestFrame = std::size_t{64} << 20;

std::string encode_frame(const Frame& frame);

/// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame. Check broken() when there is none.
  std::optional<Frame> next();
  /// The stream is not one of frames (a remote shell that prints a greeting, for instance).
  bool broken() const { return broken_; }
  const std::string& rest() const { return buffer_; }

 private:
  std::string buffer_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

/// Bytes on their way to a descriptor that may be slow. The descriptor stays in blocking mode (it may be shared with
/// other processes): after poll() says writable, pieces of at most PIPE_BUF do not block on a pipe.
class OutQueue {
 public:
  explicit OutQueue(int fd = -1) : fd_(fd) {}
  void reset(int fd) { fd_ = fd; }
  int fd() const { return fd_; }
  void push(std::string_view bytes) {
    if (!dead_) pending_.append(bytes);
  }
  std::size_t size() const { return pending_.size() - at_; }
  /// Writes one piece. Bytes written; the queue is dead() and empty once the other end has gone.
  std::size_t write_some();
  bool dead() const { return dead_; }

 private:
  int fd_;
  std::string pending_;
  std::size_t at_ = 0;
  bool dead_ = false;
};

}  // namespace tamaki::tools
