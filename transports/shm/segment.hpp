#pragma once
// The shared memory segment of one communicator on one host.
//
//   header page | control part: per member a bell and a directory | per member an arena for the rings it receives on
//
// The file is a memfd, opened by the others through /proc/<pid>/fd: it has no name, so nothing is left behind however
// the ranks end, and it does not depend on the size of /dev/shm. Where that is not possible (no access to /proc of the
// leader) it is a file in /dev/shm that is unlinked as soon as all have mapped it.
//
// No page is ever touched that has not been reserved (fallocate), so a full file system is an error code, never SIGBUS:
// memfd: the control part at creation, rings one by one; /dev/shm: everything at creation.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace tamaki {

enum class Backing : std::uint8_t { none, memfd, devshm };
const char* name_of(Backing backing);

/// How others find a segment; exchanged as bytes.
struct SegmentName {
  Backing backing = Backing::none;
  std::int32_t pid = 0;
  std::int32_t descriptor = -1;
  std::uint64_t token = 0;  // also in the header page: proof that the right file was opened
  std::uint64_t bytes = 0;
  char path[64] = {};       // devshm: name for shm_open
};

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept { *this = static_cast<Segment&&>(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  /// `reserve`: bytes from the start that are reserved at once. Errors: out_of_memory with what was needed and what
  /// is free; system.
  static Result<Segment> create(Backing backing, std::size_t bytes, std::size_t reserve);
  static Result<Segment> open(const SegmentName& name);

  const SegmentName& name() const { return name_; }
  std::byte* base() const { return base_; }
  /// Makes [offset, offset + bytes) safe to touch.
  Status reserve(std::size_t offset, std::size_t bytes);
  /// devshm, creator: removes the name. Idempotent.
  void unlink();

 private:
  SegmentName name_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
  bool owns_name_ = false;
};

}  // namespace tamaki
