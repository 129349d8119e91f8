#pragma once
// Runs the flat programs on symbolic data, in one order that stands for all (see progress.hpp and
// order.hpp): proves values, sizes, hints and results, and notes the pairs of accesses whose order must be
// proved.

#include <vector>

#include "verify/order.hpp"
#include "verify/progress.hpp"
#include "verify/verify.hpp"

namespace tamaki::proof {

/// Two accesses of `cell` that would race if they were not ordered.
struct Conflict {
  std::int32_t cell = -1;
  bool first_writes = false, second_writes = false;
  bool direct = false;                             // one of them is an access of direct mode
  std::int64_t first_chunk = 0, second_chunk = 0;  // logical numbers of the data
};

struct Replay {
  std::vector<OrderQuestion> questions;
  std::vector<Conflict> conflicts;  // one a question
  bool ordered = true, canonical = true, uneven = true, pairwise_sizes = true;
};

void replay(const Flat& flat, const Progress& progress, const VerifyOptions& options, Replay* result,
            std::vector<Finding>* findings);

}  // namespace tamaki::proof
