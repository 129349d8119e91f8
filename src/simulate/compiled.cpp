#include "simulate/compiled.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/logical.hpp"

namespace tamaki::simulation {
namespace {

/// (source, destination, channel) -> FIFO; open addressing, as millions of operands are looked up.
class FifoTable {
 public:
  std::int32_t* find(std::uint64_t key) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = at(key);
    if (slot.fifo < 0 && slot.key != key) slot.key = key, ++used_;
    return &slot.fifo;
  }

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    std::int32_t fifo = -1;
  };
  Slot& at(std::uint64_t key) {
    std::size_t i = key * 0x9e3779b97f4a7c15U >> shift_;
    while (slots_[i].key != key && slots_[i].key != ~std::uint64_t{0}) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old)
      if (slot.key != ~std::uint64_t{0}) at(slot.key) = slot;
  }
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  int shift_ = 54;
  std::size_t used_ = 0;
};

class Compiler {
 public:
  Compiler(const Network& network, const SimulationOptions& options, Compiled* out)
      : network_(network), options_(options), out_(*out) {}

  Status add(const Program& program, std::int32_t rank) {
    if (program.rank != rank || program.ranks != network_.ranks())
      return fail(Code::invalid_argument, fmt::format("the program for rank {} of {} says that it is rank {} of {}", rank,
                                                      network_.ranks(), program.rank, program.ranks));
    const auto first_lane = static_cast<std::int32_t>(out_.lanes.size());
    out_.first_lane.push_back(static_cast<std::uint32_t>(first_lane));
    out_.collective = program.collective;
    // Lanes may name steps of lanes that follow: numbers of lanes are known beforehand.
    for (std::size_t l = 0; l < program.lanes.size(); ++l)
      if (Status added = add_lane(program, static_cast<std::int32_t>(l), first_lane); !added) return added;
    return {};
  }

 private:
  double chunk_bytes(const Program& program, const Extent& extent) const {
    if (program.collective == Collective::barrier || extent.buffer == Buffer::scratch) return 1;
    const double pieces = has_blocks(program.collective) ? static_cast<double>(program.ranks) * program.chunks : program.chunks;
    return options_.bytes / pieces / options_.slices;
  }

  Status add_lane(const Program& program, std::int32_t number, std::int32_t first_lane) {
    CompiledLane lane{.rank = program.rank, .number = number, .first_block = static_cast<std::uint32_t>(out_.blocks.size())};
    std::int64_t sent = 0, taken = 0;
    for (const Block& block : program.lanes[static_cast<std::size_t>(number)].blocks) {
      if (block.times <= 0 || block.begin == block.end) continue;
      CompiledBlock made{.begin = static_cast<std::uint32_t>(out_.steps.size()),
                         .length = static_cast<std::uint32_t>(block.end - block.begin),
                         .times = block.times};
      for (std::int32_t i = block.begin; i < block.end; ++i) {
        if (Status added = add_step(program, program.steps[static_cast<std::size_t>(i)], number, first_lane); !added) return added;
        sent += std::int64_t{block.times} * out_.steps.back().destinations;
        taken += std::int64_t{block.times} * out_.steps.back().sources;
      }
      lane.steps += std::int64_t{made.times} * made.length;
      out_.blocks.push_back(made);
    }
    lane.end_block = static_cast<std::uint32_t>(out_.blocks.size());
    out_.lanes.push_back(lane);
    out_.messages += sent * options_.slices;
    out_.most_in_lane = std::max({out_.most_in_lane, sent, taken});
    if (out_.messages > options_.most_messages)
      return fail(Code::invalid_argument, fmt::format("{} ranks send more than {} messages; that would take too long", program.ranks, options_.most_messages));
    return {};
  }

  Status add_step(const Program& program, const Step& step, std::int32_t lane, std::int32_t first_lane) {
    CompiledStep made{.first_fifo = static_cast<std::uint32_t>(out_.operands.size()),
                      .first_dependency = static_cast<std::uint32_t>(out_.dependencies.size()),
                      .dependencies = step.dependencies};
    made.bytes = step.width * chunk_bytes(program, step.extent);
    const Operand* operands = program.operands.data() + step.first_operand;
    int local_sources = 0, local_destinations = 0;
    for (int k = 0; k < step.sources + step.destinations; ++k) {
      const bool source = k < step.sources;
      if (operands[k].kind == Operand::Kind::local) {
        ++(source ? local_sources : local_destinations);
        continue;
      }
      if (operands[k].peer < 0 || operands[k].peer >= program.ranks)
        return fail(Code::invalid_argument, fmt::format("rank {} lane {}: peer {} is not in 0..{}", program.rank, lane, operands[k].peer, program.ranks - 1));
      ++(source ? made.sources : made.destinations);
      out_.operands.push_back(fifo(program.rank, operands[k], source, lane));
    }
    const NetworkModel& model = network_.model();
    if (step.sources > 1 && model.reduce_bandwidth > 0) made.work_s = (step.sources - 1) * made.bytes / model.reduce_bandwidth;
    if (step.sources == 1 && local_sources == 1 && local_destinations > 0 && model.copy_bandwidth > 0)
      made.work_s = local_destinations * made.bytes / model.copy_bandwidth;
    made.work_s /= network_.rank_speed(program.rank);
    for (int i = 0; i < step.dependencies; ++i) {
      const Dependency& d = program.dependencies[static_cast<std::size_t>(step.first_dependency + i)];
      if (d.lane < 0 || d.lane >= static_cast<std::int32_t>(program.lanes.size()))
        return fail(Code::invalid_argument, fmt::format("rank {} lane {}: a step depends on lane {}, there are {}", program.rank, lane, d.lane, program.lanes.size()));
      out_.dependencies.push_back({first_lane + d.lane, d.step});
    }
    out_.steps.push_back(made);
    return {};
  }

  std::int32_t fifo(std::int32_t rank, const Operand& operand, bool receives, std::int32_t lane) {
    const auto source = static_cast<std::uint64_t>(receives ? operand.peer : rank);
    const auto destination = static_cast<std::uint64_t>(receives ? rank : operand.peer);
    std::int32_t& known = *table_.find((source * static_cast<std::uint64_t>(network_.ranks()) + destination) << 16 | operand.channel);
    if (known < 0) {
      known = static_cast<std::int32_t>(out_.fifos.size());
      out_.fifos.push_back({static_cast<std::int32_t>(source), static_cast<std::int32_t>(destination), 0});
    }
    if (!receives) out_.fifos[static_cast<std::size_t>(known)].lane = lane;
    return known;
  }

  const Network& network_;
  const SimulationOptions& options_;
  Compiled& out_;
  FifoTable table_;
};

}  // namespace

Result<Compiled> compile(const Network& network, const ProgramSource& programs, const SimulationOptions& options) {
  Compiled compiled;
  compiled.ranks = network.ranks();
  Compiler compiler(network, options, &compiled);
  for (std::int32_t rank = 0; rank < network.ranks(); ++rank)
    if (Status added = compiler.add(programs(rank), rank); !added) return tl::unexpected<Error>(added.error());
  compiled.first_lane.push_back(static_cast<std::uint32_t>(compiled.lanes.size()));
  return compiled;
}

}  // namespace tamaki::simulation
