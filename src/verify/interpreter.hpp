#pragma once
// A second opinion on schedules, independent of the proof beside it: it shares no code with it, runs the
// programs of all ranks on values that record where they came from, with FIFOs of a few slots and lanes
// interleaved at random, and looks at the results. Where the proof accepts a schedule and this finds fault,
// the proof is wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/program.hpp"

namespace tamaki {

struct InterpretOptions {
  int slices = 2;
  int slots = 1;          // of each FIFO
  bool in_place = false;  // input and output share memory in the collective's in-place form
  bool direct = false;
  bool uneven = false;  // chunks of random sizes, some of them empty; else all of size 1
  bool keeps_order = false;
  bool canonical = false;
  std::uint64_t seed = 1;
};

/// Runs one interleaving, chosen by the seed, of the programs of all ranks (programs[r] is that of rank r,
/// and structurally sound: check() finds nothing). Empty if the schedule does what its collective promises,
/// else the first complaint found, with rank, lane, slice and step.
std::string interpret(const std::vector<Program>& programs, const InterpretOptions& options);

/// What interpret() says against the programs, said to be the algorithm's for this problem, in any mode
/// that the algorithm promises (in place, direct, uneven), each with 12 interleavings; empty if nothing.
/// The complaint ends with the mode.
std::string second_opinion(const Algorithm& algorithm, const Problem& problem,
                           const std::vector<Program>& programs);

}  // namespace tamaki
