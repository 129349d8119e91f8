#include "simulate/compiled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <unordered_map>

#include "schedule/logical.hpp"
#include "simulate/mix.hpp"

namespace tamaki::simulation {
namespace {

constexpr std::size_t kMostSteps = 30'000'000;  // different stored ones; 1.2 GB
constexpr std::size_t kMostFifos = 10'000'000;  // 2 GB with their routes

/// (source, destination, channel) -> FIFO; open addressing, as millions of operands are looked up.
class FifoTable {
 public:
  /// -1 where there is none yet: the caller fills it in.
  std::int32_t* find(std::uint64_t key) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = at(key);
    if (slot.key != key) slot.key = key, ++used_;
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
  Compiler(const Network& network, Compiled* out) : network_(network), out_(*out) {}

  Status add(const Program& program, std::int32_t rank) {
    if (program.rank != rank || program.ranks != network_.ranks())
      return fail(Code::invalid_argument,
                  fmt::format("the program for rank {} of {} says that it is rank {} of {}", rank,
                              network_.ranks(), program.rank, program.ranks));
    out_.collective = program.collective;
    out_.first_of_rank.push_back(static_cast<std::uint32_t>(out_.rank_fifos.size()));
    shape_ = {};
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane)
      if (Status added = add_lane(program, static_cast<std::int32_t>(lane)); !added) return added;
    intern();
    if (out_.steps.size() > kMostSteps || out_.fifos.size() > kMostFifos)
      return fail(Code::invalid_argument,
                  fmt::format("{} ranks have too many different steps ({}) or pairs ({}) to keep in "
                              "memory, at most {} and {}",
                              program.ranks, out_.steps.size(), out_.fifos.size(), kMostSteps, kMostFifos));
    return {};
  }

 private:
  /// A shape on its own; numbers in it count from 0.
  struct Loose {
    std::vector<CompiledStep> steps;
    std::vector<std::int32_t> operands;
    std::vector<Dependency> dependencies;
    std::vector<CompiledBlock> blocks;
    std::vector<CompiledLane> lanes;
    std::int64_t messages = 0;
  };

  Status add_lane(const Program& program, std::int32_t number) {
    CompiledLane lane{.first_block = static_cast<std::uint32_t>(shape_.blocks.size())};
    std::int64_t sent = 0, taken = 0;
    for (const Block& block : program.lanes[static_cast<std::size_t>(number)].blocks) {
      if (block.times <= 0 || block.begin == block.end) continue;
      const CompiledBlock made{.begin = static_cast<std::uint32_t>(shape_.steps.size()),
                               .length = static_cast<std::uint32_t>(block.end - block.begin),
                               .times = block.times};
      for (std::int32_t i = block.begin; i < block.end; ++i) {
        if (Status added = add_step(program, program.steps[static_cast<std::size_t>(i)], number); !added)
          return added;
        sent += std::int64_t{block.times} * shape_.steps.back().destinations;
        taken += std::int64_t{block.times} * shape_.steps.back().sources;
      }
      lane.steps += std::int64_t{made.times} * made.length;
      shape_.blocks.push_back(made);
    }
    lane.end_block = static_cast<std::uint32_t>(shape_.blocks.size());
    shape_.lanes.push_back(lane);
    out_.messages += sent;
    out_.most_in_lane = std::max({out_.most_in_lane, sent, taken});
    return {};
  }

  Status add_step(const Program& program, const Step& step, std::int32_t lane) {
    CompiledStep made{.first_operand = static_cast<std::uint32_t>(shape_.operands.size()),
                      .first_dependency = static_cast<std::uint32_t>(shape_.dependencies.size()),
                      .dependencies = step.dependencies};
    if (program.collective == Collective::barrier || step.extent.buffer == Buffer::scratch)
      made.tokens = static_cast<float>(step.width);
    else
      made.share = step.width / ((has_blocks(program.collective) ? static_cast<double>(program.ranks) : 1) *
                                 program.chunks);
    const Operand* operands = program.operands.data() + step.first_operand;
    int local_sources = 0, local_destinations = 0;
    for (int k = 0; k < step.sources + step.destinations; ++k) {
      const bool source = k < step.sources;
      if (operands[k].kind == Operand::Kind::local) {
        ++(source ? local_sources : local_destinations);
        continue;
      }
      if (operands[k].peer < 0 || operands[k].peer >= program.ranks)
        return fail(Code::invalid_argument,
                    fmt::format("rank {} lane {}: peer {} is not in 0..{}", program.rank, lane,
                                operands[k].peer, program.ranks - 1));
      ++(source ? made.sources : made.destinations);
      shape_.operands.push_back(place_of(program.rank, operands[k], source, lane));
    }
    if (step.sources > 1) made.combines = static_cast<std::uint16_t>(step.sources - 1);
    if (step.sources == 1 && local_sources == 1)
      made.copies = static_cast<std::uint16_t>(local_destinations);
    for (int i = 0; i < step.dependencies; ++i) {
      const Dependency& d = program.dependencies[static_cast<std::size_t>(step.first_dependency + i)];
      if (d.lane < 0 || d.lane >= static_cast<std::int32_t>(program.lanes.size()))
        return fail(Code::invalid_argument,
                    fmt::format("rank {} lane {}: a step depends on lane {}, there are {}", program.rank,
                                lane, d.lane, program.lanes.size()));
      shape_.dependencies.push_back(d);
    }
    shape_.steps.push_back(made);
    return {};
  }

  /// Place of an operand's FIFO in the list of the rank's.
  std::int32_t place_of(std::int32_t rank, const Operand& operand, bool receives, std::int32_t lane) {
    const auto source = static_cast<std::uint64_t>(receives ? operand.peer : rank);
    const auto destination = static_cast<std::uint64_t>(receives ? rank : operand.peer);
    const std::uint64_t pair = source * static_cast<std::uint64_t>(network_.ranks()) + destination;
    std::int32_t& known = *table_.find(pair << 16 | operand.channel);
    if (known < 0) {
      known = static_cast<std::int32_t>(out_.fifos.size());
      out_.fifos.push_back({static_cast<std::int32_t>(source), static_cast<std::int32_t>(destination)});
    }
    CompiledFifo& fifo = out_.fifos[static_cast<std::size_t>(known)];
    std::int32_t& place = receives ? fifo.takes : fifo.sends;
    if (place < 0) {
      place = static_cast<std::int32_t>(out_.rank_fifos.size() - out_.first_of_rank.back());
      out_.rank_fifos.push_back(known);
    }
    (receives ? fifo.receiver_lane : fifo.lane) = lane;
    return place;
  }

  void intern() {
    std::uint64_t hash = shape_.lanes.size();
    for (const CompiledStep& s : shape_.steps) {
      hash = mix(hash, std::bit_cast<std::uint64_t>(s.share), std::uint64_t{s.combines} << 16 | s.copies);
      hash = mix(hash, s.first_operand,
                 std::uint64_t{s.sources} << 32 | s.destinations << 16U | s.dependencies);
    }
    for (const std::int32_t o : shape_.operands) hash = mix(hash, 1, static_cast<std::uint64_t>(o));
    for (const Dependency& d : shape_.dependencies)
      hash = mix(hash, static_cast<std::uint64_t>(d.lane), static_cast<std::uint64_t>(d.step));
    for (const CompiledBlock& b : shape_.blocks)
      hash = mix(hash, b.begin, std::uint64_t{b.length} << 32 | static_cast<std::uint32_t>(b.times));
    for (const CompiledLane& l : shape_.lanes) hash = mix(hash, l.first_block, l.end_block);
    auto [it, last] = by_hash_.equal_range(hash);
    for (; it != last; ++it)
      if (same(out_.shapes[static_cast<std::size_t>(it->second)]))
        return out_.shape_of_rank.push_back(it->second);
    by_hash_.emplace(hash, static_cast<std::int32_t>(out_.shapes.size()));
    out_.shape_of_rank.push_back(static_cast<std::int32_t>(out_.shapes.size()));
    keep();
  }

  struct Bases {
    std::uint32_t lane, block, step, operand, dependency;
  };
  Bases bases_of(const Shape& shape) const {
    return bases_[static_cast<std::size_t>(&shape - out_.shapes.data())];
  }

  bool same(const Shape& shape) const {
    const Bases base = bases_of(shape);
    if (shape.end_lane - shape.first_lane != shape_.lanes.size()) return false;
    const auto equal = [](const auto& loose, const auto& kept, std::uint32_t from, auto moved) {
      if (from + loose.size() > kept.size()) return false;
      for (std::size_t i = 0; i < loose.size(); ++i)
        if (!(moved(loose[i]) == kept[from + i])) return false;
      return true;
    };
    return equal(shape_.lanes, out_.lanes, base.lane,
                 [&](const CompiledLane& l) { return Same<CompiledLane>{moved(l, base)}; }) &&
           equal(shape_.blocks, out_.blocks, base.block,
                 [&](const CompiledBlock& b) { return Same<CompiledBlock>{moved(b, base)}; }) &&
           equal(shape_.steps, out_.steps, base.step,
                 [&](const CompiledStep& s) { return moved(s, base); }) &&
           equal(shape_.operands, out_.operands, base.operand, [](std::int32_t o) { return o; }) &&
           equal(shape_.dependencies, out_.dependencies, base.dependency,
                 [](const Dependency& d) { return d; });
  }
  template <class T>
  struct Same {
    T value;
    bool operator==(const CompiledLane& o) const requires std::same_as<T, CompiledLane> {
      return value.first_block == o.first_block && value.end_block == o.end_block;
    }
    bool operator==(const CompiledBlock& o) const requires std::same_as<T, CompiledBlock> {
      return value.begin == o.begin && value.length == o.length && value.times == o.times;
    }
  };
  static CompiledLane moved(CompiledLane lane, const Bases& base) {
    lane.first_block += base.block;
    lane.end_block += base.block;
    return lane;
  }
  static CompiledBlock moved(CompiledBlock block, const Bases& base) {
    block.begin += base.step;
    return block;
  }
  static CompiledStep moved(CompiledStep step, const Bases& base) {
    step.first_operand += base.operand;
    step.first_dependency += base.dependency;
    return step;
  }

  void keep() {
    const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
    const Bases base{count(out_.lanes), count(out_.blocks), count(out_.steps), count(out_.operands),
                     count(out_.dependencies)};
    bases_.push_back(base);
    for (const CompiledLane& lane : shape_.lanes) out_.lanes.push_back(moved(lane, base));
    for (const CompiledBlock& block : shape_.blocks) out_.blocks.push_back(moved(block, base));
    for (const CompiledStep& step : shape_.steps) out_.steps.push_back(moved(step, base));
    out_.operands.insert(out_.operands.end(), shape_.operands.begin(), shape_.operands.end());
    out_.dependencies.insert(out_.dependencies.end(), shape_.dependencies.begin(),
                             shape_.dependencies.end());
    out_.shapes.push_back({base.lane, count(out_.lanes)});
  }

  const Network& network_;
  Compiled& out_;
  FifoTable table_;
  Loose shape_;  // of the rank at hand
  std::unordered_multimap<std::uint64_t, std::int32_t> by_hash_;
  std::vector<Bases> bases_;  // of each shape
};

}  // namespace

Result<Compiled> compile(const Network& network, const ProgramSource& programs) {
  Compiled compiled;
  Compiler compiler(network, &compiled);
  for (std::int32_t rank = 0; rank < network.ranks(); ++rank)
    if (Status added = compiler.add(programs(rank), rank); !added)
      return tl::unexpected<Error>(added.error());
  compiled.first_of_rank.push_back(static_cast<std::uint32_t>(compiled.rank_fifos.size()));
  for (const CompiledFifo& fifo : compiled.fifos)
    if (fifo.sends < 0 || fifo.takes < 0)
      return fail(
          Code::invalid_argument,
          fmt::format("rank {} {} rank {}, which {}", fifo.sends < 0 ? fifo.destination : fifo.source,
                      fifo.sends < 0 ? "takes messages from" : "sends to",
                      fifo.sends < 0 ? fifo.source : fifo.destination,
                      fifo.sends < 0 ? "sends it none on that channel" : "takes none on that channel"));
  return compiled;
}

}  // namespace tamaki::simulation
