#pragma once
// Runs the flat programs against each other with FIFOs of few slots, without data: finds deadlocks and
// messages that do not match, and the order and matches that the other parts of the proof rely on.
//
// One run is enough. A FIFO has one lane that sends and one that receives (or lanes that order each other,
// which is proved apart), a step that can run stays able to run until it does, and nothing depends on data:
// every order of execution runs the same steps, and if one gets stuck, all do.

#include <cstdint>
#include <vector>

#include "verify/flat.hpp"

namespace tamaki::proof {

struct Progress {
  std::vector<std::int32_t> order;  // the nodes of slice 0, each after all it waits for
  /// For each operand that is a message: the operand of the other end. -1: not matched.
  std::vector<std::int32_t> match;
};

/// Runs every lane `slices` times over, each lane by itself. `slots`: messages a FIFO holds; a step runs
/// when all its sources are there and all its destinations have room. Appends what goes wrong; false if
/// anything does.
bool run_to_end(const Flat& flat, int slots, int slices, Progress* progress, std::vector<Finding>* findings,
                std::size_t limit);

}  // namespace tamaki::proof
