#pragma once
// Memory that other processes of the host can map: what tmkMemAlloc hands out. The table of live regions is one of the
// few process-wide states; it is read without locks on the data path.

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace tamaki {

/// Memory of a process as its peers on the host name it. region 0: private memory.
struct MemoryName {
  std::uint64_t address = 0;  // in the owner's address space
  std::uint32_t region = 0;   // number of an allocation of the owner, never reused
  std::int32_t descriptor = -1;  // of the region's memfd, in the owner
  std::uint64_t offset = 0;   // from the start of the region
};

/// A name as the owner keeps it: with what of the range the region covers.
struct LocalName : MemoryName {
  std::uint64_t region_bytes = 0;
  /// [pointer + at, pointer + at + bytes) lies in the region. (`offset` may be below 0, modulo 2^64: see share_pages.)
  bool covers(std::uint64_t at, std::uint64_t bytes) const {
    return region != 0 && offset + at <= region_bytes && bytes <= region_bytes - (offset + at);
  }
};

/// Zeroed, reserved, 2 MiB aligned memory in a memfd; huge pages where the system has them. Errors: out_of_memory.
Result<void*> allocate_shared(std::size_t bytes);
/// Error: invalid_argument if `pointer` is not the start of a live region of allocate_shared.
Status free_shared(void* pointer);

/// Makes a region of memory that is in use already: the whole pages inside [pointer, pointer + bytes) are copied into a
/// memfd that takes their place at the same address. The pages at the two ends, which others may be writing to, stay as
/// they are. Nobody may write to the buffer during the call. A range inside a shared one counts as one more user of it.
/// Result: number of the region, for unshare_pages. Errors: invalid_argument (not all mapped), invalid_usage (memory that
/// cannot be moved: of a file, shared already, not writable; less than 64 KiB of whole pages), out_of_memory,
/// system.
Result<std::uint32_t> share_pages(void* pointer, std::size_t bytes);
/// The last user's call makes the pages private memory again, with their contents. Error: invalid_usage if there is no
/// such region, or if its memory was unmapped before (then nothing is mapped over what may be there now).
Status unshare_pages(std::uint32_t region);

/// Names [pointer, pointer + bytes): region 0 unless all of it lies in one live region, or all but less than a page at
/// either end (the owner asks covers() before a part is offered; the peer's map() knows the size). Any thread, no locks.
LocalName name_memory(const void* pointer, std::size_t bytes);

/// Maps the region `name` of process `pid`, `*bytes` long. Errors say why not.
Result<std::byte*> map_foreign_region(int pid, const MemoryName& name, std::size_t* bytes);
void unmap_foreign_region(std::byte* base, std::size_t bytes);

}  // namespace tamaki
