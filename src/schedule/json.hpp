#pragma once
// Programs as JSON, both ways; reading back what was written gives normalized() of the program, exactly.
//
//   {"format": "tamaki-schedule-1", "programs": [ ... ]}              one schedule, a program a rank
//   a program:  {"algorithm", "collective", "ranks", "rank", "root", "chunks", "scratch_chunks",
//   "max_width",
//                "lanes": [[block, ...], ...]}
//   a block:    {"times", "modulus", "steps": [step, ...]}            times 1 and modulus 0 where they are
//   left out a step:     {"sources": [operand, ...], "destinations": [operand, ...], "size": place,
//   "width", "finish",
//                "after": [[lane, step], ...]}                        width 1, finish false, after [] where
//                left out
//   an operand: {"at": "input", "chunk", "stride"}                    a place; stride 0 where it is left
//   out
//               {"peer": 3, "channel": 0, "at": "output", "chunk", "stride"}
//                                                                     a message; "at" only where it is
//                                                                     known to land
//
// Reading checks form, types and ranges of numbers; whether the program makes sense is for check() and
// verify().

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tamaki {

/// The same program with its steps, operands and dependencies stored in the order of lanes: equal programs
/// have equal normalized forms, however they were built up.
Program normalized(const Program& program);

/// `indent`: spaces a level, -1 for one line.
std::string to_json(const Program& program, int indent = -1);
std::string schedule_to_json(std::span<const Program> programs, int indent = -1);

/// Errors (Code::invalid_argument) name the place, as "programs[2].lanes[0][1].steps[3].sources[0].chunk:
/// ...".
Result<Program> program_from_json(std::string_view text);
Result<std::vector<Program>> schedule_from_json(std::string_view text);

}  // namespace tamaki
