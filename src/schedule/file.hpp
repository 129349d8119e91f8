#pragma once
// Schedules in files: JSON (json.hpp) or MSCCL XML (msccl.hpp), told apart by what they begin with.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tamaki {

/// The programs of all ranks, without findings of check(); of a JSON file that has one program, that one. "-": stdin.
/// Errors name file and place.
Result<std::vector<Program>> read_schedule(const std::string& path);

}  // namespace tamaki
