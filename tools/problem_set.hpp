#pragma once
// Which algorithms and problems a command line means: shared by verify, draw and print.

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "base/result.hpp"
#include "schedule/file.hpp"

namespace tamaki::tools {

/// Most ranks of a schedule that is looked at: no algorithm builds for more.
inline constexpr int kMostDescribed = 65535;

/// "4", "1..64", "1,2,8..16": ascending, without repetitions, each in 1..kMostDescribed.
Result<std::vector<int>> parse_numbers(const std::string& text, const char* what);

/// Algorithms of the collectives and names given (comma-separated; empty: all). An error lists those that
/// exist.
Result<std::vector<const Algorithm*>> find_algorithms(const std::string& collectives,
                                                      const std::string& names);

/// Whether the collective has a root.
bool has_root(Collective collective);

/// One schedule: the programs of all ranks. An error gives the reason of a refusal, or how much memory is
/// missing.
Result<std::vector<Program>> build_schedule(const Algorithm& algorithm, const Problem& problem);
/// The same where the ranks are at `topology`, which has `problem.ranks` of them.
Result<std::vector<Program>> build_schedule(const Algorithm& algorithm, const Problem& problem,
                                            const Topology& topology);

}  // namespace tamaki::tools
