#include "base/memory_limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

namespace tamaki {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The number in a file of one number ("max": unlimited), or `otherwise`.
std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : otherwise;
}

std::uint64_t machine_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit))
    if (name == "MemAvailable:") return kib * 1024;
  return kUnlimited;
}

/// What the limits of this process' cgroup and its ancestors leave (v2).
std::uint64_t cgroup_memory() {
  std::uint64_t least = kUnlimited;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + (path == "/" ? std::string() : path);
      const std::uint64_t limit = number_in(folder + "/memory.max", kUnlimited);
      const std::uint64_t used = number_in(folder + "/memory.current", 0);
      if (limit != kUnlimited) least = std::min(least, limit > used ? limit - used : 0);
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_memory() { return std::min(machine_memory(), cgroup_memory()); }

Status check_memory(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t available = available_memory();
  if (available == kUnlimited || bytes <= available - available / 16) return {};
  return fail(Code::out_of_memory, what + ": " + std::to_string(bytes) + " bytes needed, " + std::to_string(available) +
                                       " available on this machine or in this cgroup");
}

}  // namespace tamaki
