#pragma once
// The programs of all ranks as the simulation walks them: one small record a stored step, loops kept as
// loops. A step names FIFOs by their place in the list of those of its rank, so that ranks that do the same
// share one shape: 13,824 ranks of a ring are one shape and a list of two FIFOs each.

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"
#include "simulate/network.hpp"
#include "simulate/simulate.hpp"

namespace tamaki::simulation {

struct CompiledStep {
  std::uint32_t first_operand = 0;  // sources, then destinations, in Compiled::operands
  std::uint32_t first_dependency = 0;
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint16_t dependencies = 0;
  std::uint16_t combines = 0;  // sources after the first: reductions of the step's bytes
  std::uint16_t copies = 0;    // within the rank
  float tokens = 0;            // bytes that the step moves whatever n is
  double share = 0;            // and of n
  bool operator==(const CompiledStep&) const = default;
};

struct CompiledBlock {
  std::uint32_t begin = 0;  // in Compiled::steps
  std::uint32_t length = 0;
  std::int32_t times = 1;
};

struct CompiledLane {
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;
  std::int64_t steps = 0;  // expanded, of one slice
};

/// What a rank does, apart from whom it does it with.
struct Shape {
  std::uint32_t first_lane = 0;  // in Compiled::lanes
  std::uint32_t end_lane = 0;
};

struct CompiledFifo {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  std::int32_t lane = 0;           // that sends; number within the rank
  std::int32_t receiver_lane = 0;  // that takes
  std::int32_t sends = -1;         // place in the list of the source's FIFOs; -1: nobody sends
  std::int32_t takes = -1;         // of the destination's
};

struct Compiled {
  Collective collective = Collective::allreduce;
  std::vector<CompiledStep> steps;
  std::vector<std::int32_t> operands;    // places in the list of the rank's FIFOs
  std::vector<Dependency> dependencies;  // on lanes of the same rank
  std::vector<CompiledBlock> blocks;
  std::vector<CompiledLane> lanes;
  std::vector<Shape> shapes;
  std::vector<std::int32_t> shape_of_rank;
  std::vector<std::int32_t> rank_fifos;      // lists, rank after rank
  std::vector<std::uint32_t> first_of_rank;  // in rank_fifos, and the end
  std::vector<CompiledFifo> fifos;
  std::int64_t messages = 0;      // of one slice
  std::int64_t most_in_lane = 0;  // sent or taken by one lane, in one slice
};

/// Errors: a program of another rank or number of ranks than asked for, peers or lanes out of range, more
/// different steps than fit.
Result<Compiled> compile(const Network& network, const ProgramSource& programs);

}  // namespace tamaki::simulation
