#pragma once
// Structural checks of one rank's program: everything that can be told without the other ranks. A program
// without findings is safe to walk, print, draw, simulate and verify; garbage is described, never followed.

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tamaki {

/// A fault and its place; -1 where the place is wider (the whole lane, rank or schedule).
struct Finding {
  std::int32_t rank = -1;
  std::int32_t lane = -1;
  std::int32_t step = -1;  // expanded number within the lane
  std::string text;        // what is wrong, with numbers and ranges; no trailing full stop
  bool operator==(const Finding&) const = default;
};

/// "rank 2 lane 0 step 5: text".
std::string text_of(const Finding& finding);

/// Most expanded steps that a program may have: beyond that it is taken for garbage.
inline constexpr std::int64_t kMaxExpandedSteps = std::int64_t{1} << 26;

/// What is wrong with `program`, at most `limit` findings. Checked: header ranges; blocks, operand and
/// dependency ranges; kinds of operands; chunk bounds in every loop iteration; peers; widths; extents and
/// their agreement with local operands; overlap of operands; finish flags; messages of one FIFO used twice
/// in a step; dependencies that exist and form no cycle.
std::vector<Finding> check(const Program& program, std::size_t limit = 16);

/// "input 3", "scratch 0..2", "from 2 channel 1", "to 3": an operand of `width` chunks in words.
std::string describe(const Operand& operand, std::int32_t width, bool source);
const char* name_of(Buffer buffer);

}  // namespace tamaki
