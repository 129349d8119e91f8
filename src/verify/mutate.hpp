#pragma once
// Schedules with one fault put in, to see whether the proof finds it.

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace tamaki {

enum class MutationKind : std::uint8_t {
  drop_step,
  duplicate_step,
  swap_steps,
  move_step,  // order and number of steps
  wrong_peer,
  wrong_channel,  // where a message goes or comes from
  wrong_chunk,
  wrong_buffer,
  wrong_landing,  // places
  drop_operand,
  duplicate_operand,
  swap_operands,  // what is combined, and in which order
  wrong_width,
  wrong_size,
  toggle_finish,  // how much, and whether it is the end
  remove_dependency,
  wrong_dependency,  // order between lanes
  garbage,           // any number anywhere becomes any other
};
inline constexpr int kMutationKinds = static_cast<int>(MutationKind::garbage) + 1;
const char* name_of(MutationKind kind);

struct Mutation {
  MutationKind kind = MutationKind::garbage;
  std::string
      text;  // "drop_step: rank 2 lane 0 step 3"; empty: nothing in the schedule to change in that way
};

/// Changes one thing in one of the programs, chosen by `seed`: the same seed makes the same change. Loops
/// of that program are unrolled first, so that one step of one iteration is changed. The result may be
/// garbage, may be equal to what was there, or may happen to mean the same.
Mutation mutate(std::vector<Program>* programs, MutationKind kind, std::uint64_t seed);

/// The program without loops: each expanded step stored by itself.
Program unrolled(const Program& program);

}  // namespace tamaki
