#pragma once
// Schedules of the user's own making, which a rule names as "file:PATH" (MSCCL XML or the library's JSON):
// proved before they run, like every other.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tamaki {

struct LoadedSchedule {
  std::string path = {};
  std::uint64_t digest = 0;            // of its programs: equal on all ranks that read equal files
  std::vector<Program> programs = {};  // of all ranks
  /// What was proved beyond that it is right, out of place and in place, through slots.
  bool direct = false, direct_in_place = false, uneven = false, keeps_order = false;

  int ranks() const { return static_cast<int>(programs.size()); }
};

/// Reads and proves; one that is right out of place alone is made to read its input from a copy. A file
/// that was read before and has not changed since is the same object. Any thread. Errors: as
/// read_schedule(); Code::invalid_argument where it is for another collective, or the proof has findings
/// (the first is told).
Result<std::shared_ptr<const LoadedSchedule>> load_schedule(const std::string& path, Collective collective);

}  // namespace tamaki
