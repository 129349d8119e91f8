#include "transports/shm/segment.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/memory_limits.hpp"
#include "base/options.hpp"

namespace tamaki {
namespace {

struct Header {
  std::uint64_t token;
};

}  // namespace

const char* name_of(Backing backing) {
  return backing == Backing::memfd ? "memfd" : backing == Backing::devshm ? "/dev/shm" : "none";
}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  std::swap(owns_name_, other.owns_name_);
  return *this;
}

Segment::~Segment() {
  unlink();
  if (base_ != nullptr) ::munmap(base_, name_.bytes);
  if (fd_ >= 0) ::close(fd_);
}

void Segment::unlink() {
  if (owns_name_) ::shm_unlink(name_.path);
  owns_name_ = false;
}

Result<Segment> Segment::create(Backing backing, std::size_t bytes, std::size_t reserve_bytes) {
  Segment s;
  s.name_.backing = backing;
  s.name_.pid = ::getpid();
  s.name_.bytes = bytes;
  randombytes_buf(&s.name_.token, sizeof s.name_.token);
  if (backing == Backing::memfd) {
    s.fd_ = ::memfd_create("tamaki", MFD_CLOEXEC);
    if (s.fd_ < 0) return fail_errno("shared memory: memfd_create");
  } else {
    std::snprintf(s.name_.path, sizeof s.name_.path, "/tamaki.%016llx", static_cast<unsigned long long>(s.name_.token));
    s.fd_ = ::shm_open(s.name_.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (s.fd_ < 0) return fail_errno(std::string("shared memory: shm_open ") + s.name_.path);
    s.owns_name_ = true;
  }
  s.name_.descriptor = s.fd_;
  if (::ftruncate(s.fd_, static_cast<off_t>(bytes)) != 0) return fail_errno("shared memory: ftruncate");
  if (Status reserved = s.reserve(0, reserve_bytes); !reserved) return pass(std::move(reserved));
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd_, 0);
  if (base == MAP_FAILED) return fail_errno("shared memory: mmap of " + format_bytes(bytes));
  s.base_ = static_cast<std::byte*>(base);
  reinterpret_cast<Header*>(s.base_)->token = s.name_.token;
  return s;
}

Result<Segment> Segment::open(const SegmentName& name) {
  Segment s;
  s.name_ = name;
  std::string path = name.path;
  if (name.backing == Backing::memfd) {
    path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.descriptor);
    s.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  } else {
    s.fd_ = ::shm_open(name.path, O_RDWR | O_CLOEXEC, 0);
  }
  if (s.fd_ < 0) return fail_errno("shared memory: open " + path);
  // The file may be another one (other mount or process namespace): map no more than there is, then look.
  if (::lseek(s.fd_, 0, SEEK_END) != static_cast<off_t>(name.bytes))
    return fail(Code::system, "shared memory: " + path + " is not the leader's segment");
  void* base = ::mmap(nullptr, name.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd_, 0);
  if (base == MAP_FAILED) return fail_errno("shared memory: mmap of " + path);
  s.base_ = static_cast<std::byte*>(base);
  std::uint64_t token = 0;  // read through the descriptor: a sparse first page of a strange file cannot raise SIGBUS
  if (::pread(s.fd_, &token, sizeof token, 0) != sizeof token || token != name.token)
    return fail(Code::system, "shared memory: " + path + " is not the leader's segment");
  return s;
}

Status Segment::reserve(std::size_t offset, std::size_t bytes) {
  if (Status enough = check_memory(bytes, "shared memory (" + std::string(name_of(name_.backing)) + ")"); !enough) {
    enough.error().scope = Scope::communicator;
    return enough;
  }
  if (::fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return {};
  struct statvfs space {};
  std::string text = "shared memory (" + std::string(name_of(name_.backing)) + "): " + std::to_string(bytes) + " bytes needed";
  const int saved = errno;
  if (::fstatvfs(fd_, &space) == 0 && space.f_blocks != 0)
    text += ", " + std::to_string(space.f_bavail * space.f_frsize) + " free";
  errno = saved;
  return fail_errno(text, Scope::communicator);
}

}  // namespace tamaki
