#pragma once
// A program as text, for people and for golden files.
//
//   allreduce ring: rank 1 of 4, 4 chunks
//   lane 0
//     0     send                   input 1 -> to 2
//     1     recv_reduce_send       from 0, input 0 -> to 2
//     2     recv_reduce_send       from 0, input 3 -> to 2
//     3     recv_reduce_copy_send  from 0, input 2 -> output 2, to 2 (output 2)  finish
//
// Numbers are expanded step numbers within the lane. Behind the operands, where it is not the ordinary:
// `width`, `finish`, `size of` (when no local input or output operand says it), `after` (lane:step of
// dependencies).

#include <span>
#include <string>

#include "schedule/program.hpp"

namespace tamaki {

enum class PrintLoops {
  unrolled,  // one line a step that is executed
  compact,  // one line a stored step; loops as "repeat 2 times, rotating in groups of 4", strides as "input
            // 0 (-1)"
};

/// Ends with a newline. `program` must have no findings of check().
std::string print(const Program& program, PrintLoops loops = PrintLoops::unrolled);

/// All programs of a schedule, one after the other, separated by empty lines.
std::string print(std::span<const Program> programs, PrintLoops loops = PrintLoops::unrolled);

}  // namespace tamaki
