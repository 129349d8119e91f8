#include "launch/frames.hpp"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tamaki::tools {
namespace {

void put32(std::string* to, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) to->push_back(static_cast<char>(value >> shift & 0xff));
}
std::uint32_t get32(const char* from) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(from[i]);
  return value;
}

}  // namespace

std::string encode_frame(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + frame.payload.size());
  bytes.push_back(static_cast<char>(frame.kind));
  bytes.push_back(static_cast<char>(frame.stream));
  bytes.append(2, '\0');
  put32(&bytes, static_cast<std::uint32_t>(frame.rank));
  put32(&bytes, static_cast<std::uint32_t>(frame.payload.size()));
  bytes.append(frame.payload);
  return bytes;
}

std::optional<Frame> FrameReader::next() {
  if (broken_ || buffer_.size() - at_ < kFrameHeaderBytes) return std::nullopt;
  const char* head = buffer_.data() + at_;
  const std::size_t length = get32(head + 8);
  const auto kind = static_cast<std::uint8_t>(head[0]);
  if (kind < 1 || kind > static_cast<std::uint8_t>(FrameKind::failed) || head[2] != 0 || head[3] != 0 ||
      length > kLargestFrame) {
    buffer_.erase(0, at_);
    at_ = 0;
    broken_ = true;
    return std::nullopt;
  }
  if (buffer_.size() - at_ < kFrameHeaderBytes + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(kind), static_cast<std::uint8_t>(head[1]),
              static_cast<std::int32_t>(get32(head + 4)),
              buffer_.substr(at_ + kFrameHeaderBytes, length)};
  at_ += kFrameHeaderBytes + length;
  if (at_ == buffer_.size() || at_ > (std::size_t{1} << 20)) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  return frame;
}

std::size_t OutQueue::write_some() {
  if (dead_ || size() == 0) return 0;
  const ssize_t n = ::write(fd_, pending_.data() + at_, std::min<std::size_t>(size(), PIPE_BUF));
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return 0;
    dead_ = true;
    pending_.clear();
    at_ = 0;
    return 0;
  }
  at_ += static_cast<std::size_t>(n);
  if (at_ == pending_.size() || at_ > (std::size_t{1} << 20)) {
    pending_.erase(0, at_);
    at_ = 0;
  }
  return static_cast<std::size_t>(n);
}

}  // namespace tamaki::tools
