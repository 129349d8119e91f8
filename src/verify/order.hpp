#pragma once
// Happens-before, exactly: a step comes before another if lane order, dependencies and messages say so.
// Room in FIFOs orders nothing here: how many slots they have is not the schedule's business.
//
// Bits flow along the edges: every lane and every message in flight carries a bit for each of a set of
// "first" steps; it is set where that step has happened before. One pass answers thousands of questions,
// and memory follows the number of lanes and messages in flight, not the number of steps.

#include <cstdint>
#include <functional>
#include <vector>

#include "verify/progress.hpp"

namespace tamaki::proof {

/// "Does `before` happen before `after`?" `before` stands earlier in Progress::order.
struct OrderQuestion {
  std::int32_t before = 0;
  std::int32_t after = 0;
};

/// Whether a step takes part; others are skipped: they wait for nothing, and only their place in the lane
/// counts.
using Active = std::function<bool(std::int32_t node)>;

/// Drops the questions that one message or dependency answers with yes. What is left are numbers of
/// questions.
std::vector<std::int32_t> not_obvious(const Flat& flat, const Progress& progress,
                                      const std::vector<OrderQuestion>& questions);

/// Those of `open` (numbers of questions) whose answer is no, ascending. `active`: null for all steps. Both
/// steps of a question must be active.
std::vector<std::int32_t> unordered(const Flat& flat, const Progress& progress,
                                    const std::vector<OrderQuestion>& questions,
                                    std::vector<std::int32_t> open, const Active& active = nullptr);

/// Walks all nodes in order; visit(node, bits) is called with what reaches the node and may set more, which
/// then flows on. `words` 64-bit words of bits.
void propagate(const Flat& flat, const Progress& progress, int words,
               const std::function<void(std::int32_t node, std::uint64_t* bits)>& visit);

}  // namespace tamaki::proof
