#pragma once
// A schedule as GOAL text, which LogGOPSim and ATLAHS simulate (Hoefler, Schneider, Lumsdaine, LogGOPSim,
// LSAP 2010):
//
//   num_ranks 2
//   rank 0 {
//   l1: send 512b to 1 tag 0
//   l2: recv 512b from 1 tag 0
//   l3: calc 26
//   l2 requires l1
//   l3 requires l2
//   }

#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tamaki {

struct GoalOptions {
  std::uint64_t bytes = 1 << 20;  // the vector, or all ranks' blocks together
  double ns_per_byte = 0.0;       // of reductions and copies; 0: they cost nothing and are left out
};

/// Loops are unrolled; chunks are cut as the executor cuts them, of whole bytes; channels are tags.
/// `programs`: of all ranks, without findings of check(). Errors: more than 2^26 lines.
Result<std::string> schedule_to_goal(std::span<const Program> programs, const GoalOptions& options = {});

}  // namespace tamaki
