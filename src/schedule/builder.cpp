#include "schedule/builder.hpp"

#include <utility>

namespace tamaki {

Builder::Builder(ProgramHeader h) {
  program_.algorithm = std::move(h.algorithm);
  program_.collective = h.collective;
  program_.ranks = h.ranks;
  program_.rank = h.rank;
  program_.root = h.root;
  program_.chunks = h.chunks;
  program_.scratch_chunks = h.scratch_chunks;
  program_.max_width = h.max_width;
}

Builder::LaneBuilder Builder::lane(int channel) {
  const int number = static_cast<int>(open_.size());
  open_.push_back({.channel = channel < 0 ? number : channel, .blocks = {}, .steps = {}});
  return LaneBuilder(this, number);
}

StepId Builder::LaneBuilder::step(std::span<const Operand> sources, std::span<const Operand> destinations,
                                  StepOptions options) {
  Program& program = builder_->program_;
  OpenLane& lane = builder_->open_[lane_];
  Step step;
  step.first_operand = static_cast<std::int32_t>(program.operands.size());
  step.sources = static_cast<std::uint16_t>(sources.size());
  step.destinations = static_cast<std::uint16_t>(destinations.size());
  step.width = options.width;
  step.finish = options.finish;
  Operand extent = options.size_of;
  for (const std::span<const Operand>& side : {sources, destinations})
    for (Operand operand : side) {
      if (operand.kind == Operand::Kind::peer && operand.channel == kLaneChannel)
        operand.channel = static_cast<std::uint16_t>(lane.channel);
      const bool sized = operand.buffer == Buffer::input || operand.buffer == Buffer::output;
      if (extent.buffer == Buffer::none && operand.kind == Operand::Kind::local && sized) extent = operand;
      program.operands.push_back(operand);
    }
  step.extent = {extent.buffer, extent.chunk, extent.stride};
  step.first_dependency = static_cast<std::int32_t>(program.dependencies.size());
  step.dependencies = static_cast<std::uint16_t>(options.after.size());
  for (const StepId& id : options.after) program.dependencies.push_back({id.lane, id.step});

  const auto position = static_cast<std::int32_t>(lane.steps.size());
  lane.steps.push_back(step);
  if (!lane.in_loop && !lane.blocks.empty() && lane.blocks.back().times == 1 && lane.blocks.back().end == position)
    lane.blocks.back().end = position + 1;
  else if (!lane.in_loop)
    lane.blocks.push_back({position, position + 1, 1, 0});
  return {lane_, lane.expanded++};
}

void Builder::LaneBuilder::repeat(int times, int modulus, const std::function<void()>& body) {
  if (times <= 0) return;
  const auto begin = static_cast<std::int32_t>(builder_->open_[lane_].steps.size());
  builder_->open_[lane_].in_loop = true;
  body();
  OpenLane& lane = builder_->open_[lane_];
  lane.in_loop = false;
  const auto end = static_cast<std::int32_t>(lane.steps.size());
  lane.blocks.push_back({begin, end, times, modulus});
  lane.expanded += (times - 1) * (end - begin);
}

Program Builder::take() {
  for (OpenLane& lane : open_) {
    const auto base = static_cast<std::int32_t>(program_.steps.size());
    program_.steps.insert(program_.steps.end(), lane.steps.begin(), lane.steps.end());
    for (Block& block : lane.blocks) {
      block.begin += base;
      block.end += base;
    }
    program_.lanes.push_back({std::move(lane.blocks)});
  }
  open_.clear();
  return std::exchange(program_, {});
}

}  // namespace tamaki
