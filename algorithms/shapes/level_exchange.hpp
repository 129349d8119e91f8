#pragma once
// Allreduce level by level: inside the groups everyone sends each owner its part at once; across the groups
// of the last level the owners' rings carry on; then the results go back down.

#include <string_view>

#include "algorithms/shapes/levels.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

/// What carries on across the groups of the last level: a ring for each position, or (fewer messages, twice
/// the bytes from the busiest) a pair of trees, each for half of the position's part.
enum class Across { ring, trees };

/// The program of `rank`. Every level has lanes of its own, so that slices are in different levels at the
/// same time; and so has each of problem.lanes streams that share the message, so that the latency of one's
/// ring is hidden behind the others'.
Program level_allreduce(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank,
                        Across across = Across::ring);
ClosedForm level_allreduce_form(const Hierarchy& hierarchy, const Problem& problem,
                                Across across = Across::ring);

}  // namespace tamaki
