#pragma once
// Single copies between private memory of two processes: process_vm_readv, process_vm_writev.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/result.hpp"

namespace tamaki {

/// A word of this process whose value peers know, to try access with.
struct CopyProbe {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};
CopyProbe own_copy_probe();

/// Whether this process may read and write memory of `pid`; decided by trying, because permission depends on yama,
/// capabilities, namespaces and seccomp. `why`: reason of a no.
bool may_copy(int pid, const CopyProbe& probe, std::string* why);

Status copy_from(int pid, std::byte* local, std::uint64_t address, std::size_t bytes);
Status copy_to(int pid, const std::byte* local, std::uint64_t address, std::size_t bytes);

}  // namespace tamaki
