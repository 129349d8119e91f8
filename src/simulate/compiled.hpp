#pragma once
// The programs of all ranks as the simulation walks them: one small record a stored step, loops kept as loops,
// pairs of ranks and channels as numbered FIFOs.

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"
#include "simulate/network.hpp"
#include "simulate/simulate.hpp"

namespace tamaki::simulation {

struct CompiledStep {
  std::uint32_t first_fifo = 0;  // sources, then destinations, in Compiled::operands
  std::uint32_t first_dependency = 0;
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint16_t dependencies = 0;
  double bytes = 0;   // of each message, in one slice
  double work_s = 0;  // of the rank at full speed, in one slice
};

struct CompiledBlock {
  std::uint32_t begin = 0;  // in Compiled::steps
  std::uint32_t length = 0;
  std::int32_t times = 1;
};

struct CompiledLane {
  std::int32_t rank = 0;
  std::int32_t number = 0;  // within the rank
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;
  std::int64_t steps = 0;  // expanded, of one slice
};

struct CompiledFifo {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  std::int32_t lane = 0;  // number, within the sender, of the lane that sends; decides the engine
};

struct CompiledDependency {
  std::int32_t lane = 0;  // in Compiled::lanes
  std::int32_t step = 0;
};

struct Compiled {
  Collective collective = Collective::allreduce;
  std::int32_t ranks = 0;
  std::vector<CompiledStep> steps;
  std::vector<std::int32_t> operands;  // FIFOs
  std::vector<CompiledDependency> dependencies;
  std::vector<CompiledBlock> blocks;
  std::vector<CompiledLane> lanes;
  std::vector<std::uint32_t> first_lane;  // of each rank, and the end
  std::vector<CompiledFifo> fifos;
  std::int64_t messages = 0;    // of all slices
  std::int64_t most_in_lane = 0;  // sent or taken by one lane, in one slice
};

/// Errors: a program of another rank or number of ranks than asked for, peers out of range, more messages than
/// allowed.
Result<Compiled> compile(const Network& network, const ProgramSource& programs,
                         const SimulationOptions& options);

}  // namespace tamaki::simulation
