#pragma once
// How much memory there is to take, before it is taken.

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace tamaki {

/// Bytes that this process could still use without anybody being killed for it: the kernel's estimate for the machine
/// (MemAvailable), and what the cgroup's limits leave.
std::uint64_t available_memory();

/// Shared memory is handed out by the kernel until the machine is full, and then processes are killed: an allocation
/// that would leave less than a sixteenth of what is available is refused with out_of_memory, naming both numbers.
/// `what`: e.g. "shared memory".
Status check_memory(std::uint64_t bytes, const std::string& what);

}  // namespace tamaki
