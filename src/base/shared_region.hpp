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

/// Zeroed, reserved, 2 MiB aligned memory in a memfd; huge pages where the system has them. Errors: out_of_memory.
Result<void*> allocate_shared(std::size_t bytes);
/// Error: invalid_argument if `pointer` is not the start of a live region.
Status free_shared(void* pointer);
/// Names [pointer, pointer + bytes): region 0 unless all of it lies in one live region. Any thread, no locks.
MemoryName name_memory(const void* pointer, std::size_t bytes);
/// Number of regions freed so far; peers that hold mappings compare it.
std::uint32_t regions_freed();

/// Maps the region `name` of process `pid`, `*bytes` long. Errors say why not.
Result<std::byte*> map_foreign_region(int pid, const MemoryName& name, std::size_t* bytes);
void unmap_foreign_region(std::byte* base, std::size_t bytes);

}  // namespace tamaki
