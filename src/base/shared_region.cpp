#include "base/shared_region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "base/memory_limits.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;
constexpr int kMaxRegions = 4096;

struct Region {
  // `begin` != 0 marks a live entry; it is stored last and cleared first (release / acquire), so that a reader that
  // sees it sees the rest.
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::uint32_t> number{0};
  std::atomic<int> descriptor{-1};
};
Region g_regions[kMaxRegions];
std::atomic<int> g_high_water{0};
std::atomic<std::uint32_t> g_freed{0};
std::mutex g_mutex;  // of writers
std::uint32_t g_last_number = 0;

std::size_t round_up(std::size_t bytes) { return (bytes + kHuge - 1) / kHuge * kHuge; }

/// Reserves 2 MiB aligned address space and maps the file over it.
void* map_aligned(int fd, std::size_t size) {
  void* space = ::mmap(nullptr, size + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return MAP_FAILED;
  const auto start = reinterpret_cast<std::uintptr_t>(space);
  const std::uintptr_t aligned = (start + kHuge - 1) / kHuge * kHuge;
  void* mapped = ::mmap(reinterpret_cast<void*>(aligned), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    ::munmap(space, size + kHuge);
    return MAP_FAILED;
  }
  if (aligned > start) ::munmap(space, aligned - start);
  if (start + kHuge > aligned) ::munmap(reinterpret_cast<void*>(aligned + size), start + kHuge - aligned);
  return mapped;
}

int reserved_memfd(std::size_t size, unsigned flags) {
  const int fd = ::memfd_create("tamaki", MFD_CLOEXEC | flags);
  if (fd < 0) return -1;
  if (::ftruncate(fd, static_cast<off_t>(size)) == 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0) return fd;
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

}  // namespace

Result<void*> allocate_shared(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 62)) return fail(Code::out_of_memory, "shared memory of " + std::to_string(bytes) + " bytes");
  const std::size_t size = bytes == 0 ? kHuge : round_up(bytes);
  if (Status enough = check_memory(size, "shared memory"); !enough) return pass(std::move(enough));
  int fd = reserved_memfd(size, MFD_HUGETLB);  // succeeds only where the administrator has set huge pages aside
  const bool huge = fd >= 0;
  if (!huge) fd = reserved_memfd(size, 0);
  if (fd < 0) return fail_errno("shared memory of " + std::to_string(size) + " bytes: memfd_create, fallocate");
  void* base = map_aligned(fd, size);
  if (base == MAP_FAILED) {
    ::close(fd);
    return fail_errno("shared memory of " + std::to_string(size) + " bytes: mmap");
  }
  if (!huge) ::madvise(base, size, MADV_HUGEPAGE);  // helps where shmem_enabled is `advise`
  ::madvise(base, size, MADV_POPULATE_WRITE);       // faults now, not in the first collective; best effort
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < kMaxRegions; ++i) {
    Region& region = g_regions[i];
    if (region.begin.load(std::memory_order_relaxed) != 0) continue;
    region.bytes.store(size, std::memory_order_relaxed);
    region.number.store(++g_last_number, std::memory_order_relaxed);
    region.descriptor.store(fd, std::memory_order_relaxed);
    if (i >= g_high_water.load(std::memory_order_relaxed)) g_high_water.store(i + 1, std::memory_order_release);
    region.begin.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);  // pairs with name_memory
    return base;
  }
  ::munmap(base, size);
  ::close(fd);
  return fail(Code::out_of_memory, "more than " + std::to_string(kMaxRegions) + " live allocations of shared memory");
}

Status free_shared(void* pointer) {
  if (pointer == nullptr) return {};
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < g_high_water.load(std::memory_order_relaxed); ++i) {
    Region& region = g_regions[i];
    if (region.begin.load(std::memory_order_relaxed) != reinterpret_cast<std::uintptr_t>(pointer)) continue;
    region.begin.store(0, std::memory_order_release);
    g_freed.fetch_add(1, std::memory_order_relaxed);
    ::munmap(pointer, region.bytes.load(std::memory_order_relaxed));
    ::close(region.descriptor.load(std::memory_order_relaxed));
    return {};
  }
  return fail(Code::invalid_argument, "pointer does not come from tmkMemAlloc, or was freed before");
}

MemoryName name_memory(const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  MemoryName name{.address = address};
  const int high = g_high_water.load(std::memory_order_acquire);
  for (int i = 0; i < high; ++i) {
    const Region& region = g_regions[i];
    const std::uintptr_t begin = region.begin.load(std::memory_order_acquire);  // pairs with allocate_shared
    if (begin == 0 || address < begin) continue;
    const std::size_t size = region.bytes.load(std::memory_order_relaxed);
    if (address - begin > size || bytes > size - (address - begin)) continue;
    name.region = region.number.load(std::memory_order_relaxed);
    name.descriptor = region.descriptor.load(std::memory_order_relaxed);
    name.offset = address - begin;
    break;
  }
  return name;
}

std::uint32_t regions_freed() { return g_freed.load(std::memory_order_relaxed); }

Result<std::byte*> map_foreign_region(int pid, const MemoryName& name, std::size_t* bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(name.descriptor);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return fail_errno("shared memory of another rank: open " + path, Scope::communicator);
  struct stat facts {};
  void* base = MAP_FAILED;
  if (::fstat(fd, &facts) == 0) base = map_aligned(fd, static_cast<std::size_t>(facts.st_size));
  const int saved = errno;
  ::close(fd);
  errno = saved;
  if (base == MAP_FAILED) return fail_errno("shared memory of another rank: mmap of " + path, Scope::communicator);
  *bytes = static_cast<std::size_t>(facts.st_size);
  ::madvise(base, *bytes, MADV_HUGEPAGE);
  ::madvise(base, *bytes, MADV_POPULATE_WRITE);  // the pages exist; this only fills the page table
  return static_cast<std::byte*>(base);
}

void unmap_foreign_region(std::byte* base, std::size_t bytes) { ::munmap(base, bytes); }

}  // namespace tamaki
