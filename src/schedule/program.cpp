#include "schedule/program.hpp"

#include <algorithm>

namespace tamaki {

std::int32_t Program::chunks_of(Buffer buffer) const {
  const std::int32_t all = ranks * chunks;
  switch (buffer) {
    case Buffer::scratch: return scratch_chunks;
    case Buffer::none: return 0;
    default: break;
  }
  const bool input = buffer == Buffer::input;
  switch (collective) {
    case Collective::allgather: return input ? chunks : all;
    case Collective::gather: return input ? chunks : rank == root ? all : 0;
    case Collective::reduce_scatter: return input ? all : chunks;
    case Collective::scatter: return input ? (rank == root ? all : 0) : chunks;
    case Collective::alltoall: return all;
    case Collective::barrier: return 0;
    case Collective::reduce: return input || rank == root ? chunks : 0;
    case Collective::broadcast: return !input || rank == root ? chunks : 0;
    default: return chunks;
  }
}

void LaneCursor::settle() {
  const auto& blocks = program_->lanes[lane_].blocks;
  while (block_ < blocks.size() && (blocks[block_].times <= 0 || blocks[block_].begin == blocks[block_].end)) ++block_;
}

const ExpandedStep& LaneCursor::current() {
  const Block& block = program_->lanes[lane_].blocks[block_];
  const Step& step = program_->steps[block.begin + in_block_];
  const Operand* operands = program_->operands.data() + step.first_operand;
  view_ = {lane_, index_, &step, step.extent, operands, operands + step.sources};
  if (iteration_ > 0) {
    const std::int64_t i = iteration_;
    resolved_.assign(operands, operands + step.sources + step.destinations);
    for (Operand& operand : resolved_)
      operand.chunk = rotate(operand.chunk, i * operand.stride, operand.stride ? block.modulus : 0);
    view_.extent.chunk = rotate(step.extent.chunk, i * step.extent.stride, step.extent.stride ? block.modulus : 0);
    view_.sources = resolved_.data();
    view_.destinations = resolved_.data() + step.sources;
  }
  return view_;
}

void LaneCursor::advance() {
  const Block& block = program_->lanes[lane_].blocks[block_];
  ++index_;
  if (++in_block_ < block.end - block.begin) return;
  in_block_ = 0;
  if (++iteration_ < block.times) return;
  iteration_ = 0;
  ++block_;
  settle();
}

std::int64_t expanded_steps(const Program& program, std::int32_t lane) {
  std::int64_t total = 0;
  for (const Block& block : program.lanes[lane].blocks)
    total += std::int64_t{std::max(block.times, 0)} * (block.end - block.begin);
  return total;
}

const char* name_of(const Step& step, const Operand* operands) {
  const auto is_peer = [](const Operand& o) { return o.kind == Operand::Kind::peer; };
  const Operand* destinations = operands + step.sources;
  const bool receives = std::any_of(operands, destinations, is_peer);
  const bool sends = std::any_of(destinations, destinations + step.destinations, is_peer);
  const bool keeps = std::any_of(destinations, destinations + step.destinations, [&](const Operand& o) { return !is_peer(o); });
  const bool reduces = step.sources > 1;
  if (receives && sends) return reduces ? (keeps ? "recv_reduce_copy_send" : "recv_reduce_send") : "recv_copy_send";
  if (receives) return reduces ? "recv_reduce" : "recv";
  if (sends) return reduces ? (keeps ? "reduce_copy_send" : "reduce_send") : (keeps ? "copy_send" : "send");
  return reduces ? "reduce" : "copy";
}

}  // namespace tamaki
