#include "base/shared_region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory_limits.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;
const std::uintptr_t g_page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));  // 64 KiB on some arm machines
constexpr int kMaxRegions = 4096;
/// Whole pages of a buffer that are worth a memory mapping of their own, in every process of the host.
constexpr std::size_t kLeastShared = std::size_t{64} << 10;

struct Region {
  // `begin` != 0 marks a live entry; it is stored last and cleared first (release / acquire), so that a reader that
  // sees it sees the rest.
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> bytes{0};
  std::atomic<std::uint32_t> number{0};
  std::atomic<int> descriptor{-1};
  int users = 0;  // of share_pages; 0: made by allocate_shared. Under g_mutex
};
Region g_regions[kMaxRegions];
std::atomic<int> g_high_water{0};
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

std::string range_text(std::uintptr_t begin, std::uintptr_t end) {
  char text[80];
  std::snprintf(text, sizeof text, "memory 0x%zx..0x%zx", static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  return text;
}

/// A line of /proc/self/maps.
struct Area {
  std::uintptr_t begin = 0, end = 0;
  char rights[5] = {};
  unsigned long long inode = 0;
  std::string name;
};

/// Calls `see` for each mapping that meets [begin, end), in order of addresses, until it returns false.
template <class See>
Status each_area(std::uintptr_t begin, std::uintptr_t end, See&& see) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return fail_errno("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Area area;
    unsigned long first = 0, last = 0;
    int name_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*x %*x:%*x %llu %n", &first, &last, area.rights, &area.inode, &name_at) < 4) continue;
    area.begin = first;
    area.end = last;
    if (area.end <= begin) continue;
    if (area.begin >= end) break;
    area.name = line.substr(std::min(line.size(), static_cast<std::size_t>(name_at)));
    if (!see(area)) break;
  }
  return {};
}

/// All of [begin, end) is private, anonymous, readable and writable memory that is no stack.
Status check_movable(std::uintptr_t begin, std::uintptr_t end, const std::string& range) {
  std::uintptr_t known = begin;
  Status verdict;
  Status read = each_area(begin, end, [&](const Area& area) {
    if (area.begin > known) return false;
    const bool plain = std::string_view(area.rights) == "rw-p" && area.inode == 0 && !area.name.starts_with("[stack") &&
                       !area.name.starts_with("/");
    if (!plain) verdict = fail(Code::invalid_usage, range + " is not plain private memory: " + area.rights + " " + area.name);
    known = area.end;
    return plain;
  });
  if (!read) return read;
  if (!verdict) return verdict;
  if (known < end) return fail(Code::invalid_argument, range + " is not mapped from " + range_text(known, end).substr(7));
  return {};
}

/// Puts private memory with the same contents in the place of [begin, begin + size), a mapping of `fd`.
Status make_private(std::uintptr_t begin, std::size_t size, int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return fail_errno("shared memory: fstat");
  std::uintptr_t known = begin;
  Status read = each_area(begin, begin + size, [&](const Area& area) {
    if (area.begin > known || area.inode != facts.st_ino || !area.name.starts_with("/memfd:tamaki")) return false;
    known = area.end;
    return true;
  });
  if (!read) return read;
  if (known < begin + size)
    return fail(Code::invalid_usage, range_text(begin, begin + size) + " was unmapped or freed before tmkDeregister");
  void* copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return fail_errno("memory for the contents of a registered buffer: mmap");
  std::memcpy(copy, reinterpret_cast<const void*>(begin), size);
  if (::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(begin)) == MAP_FAILED) {
    const tl::unexpected<Error> error = fail_errno("memory for the contents of a registered buffer: mremap");
    ::munmap(copy, size);
    return error;
  }
  return {};
}

/// Enters [base, base + size) of `fd`. g_mutex is held. Null: the table is full.
Region* enter_region(void* base, std::size_t size, int fd, int users) {
  for (int i = 0; i < kMaxRegions; ++i) {
    Region& region = g_regions[i];
    if (region.begin.load(std::memory_order_relaxed) != 0) continue;
    region.bytes.store(size, std::memory_order_relaxed);
    region.number.store(++g_last_number, std::memory_order_relaxed);
    region.descriptor.store(fd, std::memory_order_relaxed);
    region.users = users;
    if (i >= g_high_water.load(std::memory_order_relaxed)) g_high_water.store(i + 1, std::memory_order_release);
    region.begin.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);  // pairs with name_memory
    return &region;
  }
  return nullptr;
}

Error table_full() {
  return {Code::out_of_memory, Scope::request, "more than " + std::to_string(kMaxRegions) + " live allocations of shared memory"};
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
  if (enter_region(base, size, fd, 0) != nullptr) return base;
  ::munmap(base, size);
  ::close(fd);
  return tl::unexpected<Error>(table_full());
}

Status free_shared(void* pointer) {
  if (pointer == nullptr) return {};
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < g_high_water.load(std::memory_order_relaxed); ++i) {
    Region& region = g_regions[i];
    if (region.begin.load(std::memory_order_relaxed) != reinterpret_cast<std::uintptr_t>(pointer) || region.users != 0) continue;
    region.begin.store(0, std::memory_order_release);
    ::munmap(pointer, region.bytes.load(std::memory_order_relaxed));
    ::close(region.descriptor.load(std::memory_order_relaxed));
    return {};
  }
  return fail(Code::invalid_argument, "pointer does not come from tmkMemAlloc, or was freed before");
}

Result<std::uint32_t> share_pages(void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::string range = range_text(address, address + bytes);
  const std::uintptr_t begin = (address + g_page - 1) / g_page * g_page, end = (address + bytes) / g_page * g_page;
  // Also keeps a buffer without a whole page from counting as a part of a neighbour that begins where it would.
  const bool worthwhile = end > begin && end - begin >= kLeastShared;
  const std::lock_guard lock(g_mutex);
  for (int i = 0; worthwhile && i < g_high_water.load(std::memory_order_relaxed); ++i) {
    Region& region = g_regions[i];
    const std::uintptr_t first = region.begin.load(std::memory_order_relaxed);
    if (first == 0 || begin < first || end > first + region.bytes.load(std::memory_order_relaxed)) continue;
    if (region.users == 0) return fail(Code::invalid_usage, range + " comes from tmkMemAlloc: it is shared already");
    ++region.users;
    return region.number.load(std::memory_order_relaxed);
  }
  if (Status movable = check_movable(address, address + bytes, range); !movable) return pass(std::move(movable));
  if (!worthwhile)
    return fail(Code::invalid_usage, range + " holds less than " + std::to_string(kLeastShared) + " bytes in whole pages");
  const std::size_t size = end - begin;
  if (Status enough = check_memory(size, "shared memory"); !enough) return pass(std::move(enough));
  const int fd = reserved_memfd(size, 0);
  if (fd < 0) return fail_errno("shared memory of " + std::to_string(size) + " bytes: memfd_create, fallocate");
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = ::pwrite(fd, reinterpret_cast<const void*>(begin + done), size - done, static_cast<off_t>(done));
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const tl::unexpected<Error> error = fail_errno(range + ": copying it to shared memory");
      ::close(fd);
      return error;
    }
  }
  // Readers in other threads see the same bytes before and after: the kernel exchanges the mapping in one step.
  Region* region = enter_region(reinterpret_cast<void*>(begin), size, fd, 1);
  if (region == nullptr) {
    ::close(fd);
    return tl::unexpected<Error>(table_full());
  }
  if (::mmap(reinterpret_cast<void*>(begin), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const tl::unexpected<Error> error = fail_errno(range + ": mmap");
    region->begin.store(0, std::memory_order_release);
    ::close(fd);
    return error;
  }
  ::madvise(reinterpret_cast<void*>(begin), size, MADV_HUGEPAGE);
  ::madvise(reinterpret_cast<void*>(begin), size, MADV_POPULATE_WRITE);
  return region->number.load(std::memory_order_relaxed);
}

Status unshare_pages(std::uint32_t number) {
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < g_high_water.load(std::memory_order_relaxed); ++i) {
    Region& region = g_regions[i];
    const std::uintptr_t begin = region.begin.load(std::memory_order_relaxed);
    if (begin == 0 || region.users == 0 || region.number.load(std::memory_order_relaxed) != number) continue;
    if (--region.users > 0) return {};
    region.begin.store(0, std::memory_order_release);
    const std::size_t size = region.bytes.load(std::memory_order_relaxed);
    const int fd = region.descriptor.load(std::memory_order_relaxed);
    Status done = make_private(begin, size, fd);
    ::close(fd);
    return done;
  }
  return fail(Code::invalid_usage, "shared pages number " + std::to_string(number) + " are not there (any more)");
}

LocalName name_memory(const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  LocalName name;
  name.address = address;
  const int high = g_high_water.load(std::memory_order_acquire);
  for (int i = 0; i < high; ++i) {
    const Region& region = g_regions[i];
    const std::uintptr_t begin = region.begin.load(std::memory_order_acquire);  // pairs with enter_region
    if (begin == 0) continue;
    const std::size_t size = region.bytes.load(std::memory_order_relaxed);
    // All of it, or (share_pages) all whole pages of it.
    if ((address + g_page - 1) / g_page * g_page < begin || address >= begin + size) continue;
    if ((address + bytes) / g_page * g_page > begin + size) continue;
    name.region = region.number.load(std::memory_order_relaxed);
    name.descriptor = region.descriptor.load(std::memory_order_relaxed);
    name.offset = address - begin;
    name.region_bytes = size;
    break;
  }
  return name;
}

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
