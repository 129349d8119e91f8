#pragma once
// Groups of ranks that run their schedules at the same time, as one schedule for all ranks of a machine:
// what the communicators of training in three dimensions do, which share links.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.hpp"
#include "simulate/simulate.hpp"

namespace tamaki {

/// Program of member `member` of group `group`, as if the group were alone (its ranks 0, 1, ... are the
/// members in order).
using GroupProgramSource = std::function<Program(std::int32_t group, std::int32_t member)>;

/// The programs of `ranks` ranks, of which groups[g][m] runs member m's program of group g; ranks of no
/// group do nothing. Sizes: a simulation of them takes `bytes_side_by_side` bytes. Errors
/// (Code::invalid_argument): no group, groups of different sizes, a rank that is in none of 0..ranks - 1 or
/// in two groups.
Result<ProgramSource> side_by_side(std::int32_t ranks, const std::vector<std::vector<std::int32_t>>& groups,
                                   GroupProgramSource programs);

/// SimulationOptions::bytes for groups of `group_size` ranks that each have n = `group_bytes`: the same
/// where n is a vector's length; where it is all ranks' blocks together, those of all `ranks`.
double bytes_side_by_side(Collective collective, double group_bytes, std::int32_t ranks,
                          std::int32_t group_size);

}  // namespace tamaki
