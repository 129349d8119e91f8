#include "verify/flat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace tamaki::proof {
namespace {

constexpr std::int64_t kMaxNodes = std::int64_t{1} << 27;
constexpr std::int64_t kMaxCells = std::int64_t{1} << 28;

bool same_schedule(std::span<const Program> programs, std::vector<Finding>* findings) {
  if (programs.empty()) {
    findings->push_back({.text = "there are no programs"});
    return false;
  }
  const Program& a = programs[0];
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const Program& b = programs[r];
    const auto say = [&](const char* what, std::int64_t mine, std::int64_t wanted) {
      findings->push_back(
          {static_cast<std::int32_t>(r), -1, -1, fmt::format("{} is {}, expected {}", what, mine, wanted)});
    };
    if (b.ranks != static_cast<std::int64_t>(programs.size()))
      say("the number of ranks", b.ranks, programs.size());
    if (b.rank != static_cast<std::int64_t>(r)) say("the program's rank", b.rank, r);
    if (b.collective != a.collective) say("the collective's number", int(b.collective), int(a.collective));
    if (b.root != a.root) say("the root", b.root, a.root);
    if (b.chunks != a.chunks) say("the number of chunks", b.chunks, a.chunks);
    if (b.max_width != a.max_width) say("max_width", b.max_width, a.max_width);
    if (b.algorithm != a.algorithm)
      findings->push_back(
          {static_cast<std::int32_t>(r), -1, -1,
           fmt::format("the algorithm is \"{}\", expected \"{}\"", b.algorithm, a.algorithm)});
    if (findings->size() >= 8) return false;
  }
  return findings->empty();
}

class Flattener {
 public:
  Flattener(std::span<const Program> programs, FlatOptions options, Flat* flat,
            std::vector<Finding>* findings)
      : programs_(programs), options_(options), flat_(*flat), findings_(*findings) {}

  bool run() {
    if (!place_cells() || !count()) return false;
    for (const Program& program : programs_) {
      fifo_of_operand_.assign(program.operands.size(), -1);
      flat_.first_lane.push_back(static_cast<std::int32_t>(flat_.lanes.size()));
      for (const Lane& lane : program.lanes) add_lane(program, lane);
    }
    return findings_.empty();
  }

 private:
  bool place_cells() {
    std::int64_t next = 0;
    for (const Program& p : programs_) {
      const std::int64_t in = p.chunks_of(Buffer::input), out = p.chunks_of(Buffer::output),
                         own = std::int64_t{p.rank} * p.chunks;
      std::int64_t input = next, output = next + in, end = next + in + out;
      if (options_.in_place && in > 0 && out > 0) {
        switch (p.collective) {
          case Collective::allgather:
          case Collective::gather:
            output = next, input = next + own, end = next + out;
            break;
          case Collective::reduce_scatter:
          case Collective::scatter:
            output = next + own, end = next + in;
            break;
          default:
            output = next, end = next + std::max(in, out);
        }
      }
      next = end + p.scratch_chunks;
      if (next > kMaxCells) {
        findings_.push_back(
            {.text = fmt::format("more than {} chunks of buffers on all ranks together", kMaxCells)});
        return false;
      }
      flat_.cells.push_back({static_cast<std::int32_t>(input), static_cast<std::int32_t>(output),
                             static_cast<std::int32_t>(end), static_cast<std::int32_t>(next)});
    }
    flat_.cell_count = static_cast<std::int32_t>(next);
    return true;
  }

  bool count() {
    std::int64_t nodes = 0, operands = 0;
    for (const Program& p : programs_)
      for (const Lane& lane : p.lanes)
        for (const Block& block : lane.blocks)
          for (std::int32_t i = block.begin; i < block.end; ++i) {
            nodes += block.times;
            operands += std::int64_t{block.times} * (p.steps[i].sources + p.steps[i].destinations);
          }
    nodes *= options_.slices;
    operands *= options_.slices;
    if (nodes > kMaxNodes || operands > 2 * kMaxNodes) {
      findings_.push_back({.text = fmt::format("more than {} steps on all ranks together", kMaxNodes)});
      return false;
    }
    flat_.nodes.reserve(nodes);
    flat_.operands.reserve(operands);
    flat_.owner.reserve(operands);
    return true;
  }

  void add_lane(const Program& program, const Lane& lane) {
    const auto number = static_cast<std::int32_t>(flat_.lanes.size());
    FlatLane flat{.rank = program.rank,
                  .number = number - flat_.first_lane[program.rank],
                  .begin = static_cast<std::int32_t>(flat_.nodes.size())};
    for (int slice = 0; slice < options_.slices; ++slice)
      for (const Block& block : lane.blocks)
        for (std::int32_t iteration = 0; iteration < block.times; ++iteration)
          for (std::int32_t i = block.begin; i < block.end; ++i)
            add_node(program, block, iteration, i, number);
    flat.end = static_cast<std::int32_t>(flat_.nodes.size());
    flat_.lanes.push_back(flat);
  }

  void add_node(const Program& program, const Block& block, std::int64_t iteration, std::int32_t index,
                std::int32_t lane) {
    const Step& step = program.steps[index];
    const auto at = [&](std::int32_t chunk, std::int32_t stride) {
      return stride == 0 ? chunk : rotate(chunk, iteration * stride, block.modulus);
    };
    const auto node = static_cast<std::int32_t>(flat_.nodes.size());
    flat_.nodes.push_back({&step, static_cast<std::int32_t>(flat_.operands.size()),
                           at(step.extent.chunk, step.extent.stride), lane});
    for (std::int32_t k = 0; k < step.sources + step.destinations; ++k) {
      const Operand& o = program.operands[step.first_operand + k];
      FlatOperand flat;
      if (o.kind == Operand::Kind::local) {
        flat.cell = base(program.rank, o.buffer) + at(o.chunk, o.stride);
      } else {
        flat.fifo = fifo(program.rank, o, k < step.sources, step.first_operand + k, lane);
        if (o.buffer != Buffer::none) flat.cell = landing(o, at(o.chunk, o.stride), step.width, node);
      }
      flat_.operands.push_back(flat);
      flat_.owner.push_back(node);
    }
  }

  std::int32_t base(std::int32_t rank, Buffer buffer) const {
    const RankCells& c = flat_.cells[rank];
    return buffer == Buffer::input ? c.input : buffer == Buffer::output ? c.output : c.scratch;
  }

  std::int32_t landing(const Operand& o, std::int64_t chunk, std::int32_t width, std::int32_t node) {
    const std::int32_t room = programs_[o.peer].chunks_of(o.buffer);
    if (chunk >= 0 && chunk + width <= room)
      return static_cast<std::int32_t>(base(o.peer, o.buffer) + chunk);
    if (findings_.size() < 8) {
      const std::int32_t lane = flat_.nodes[node].lane, begin = lane == 0 ? 0 : flat_.lanes[lane - 1].end;
      const auto rank = static_cast<std::int32_t>(flat_.first_lane.size()) - 1;
      findings_.push_back(
          {rank, lane - flat_.first_lane[rank], node - begin,
           fmt::format("its message is said to land in {} {}..{} of rank {}, which has {} chunks there",
                       name_of(o.buffer), chunk, chunk + width - 1, o.peer, room)});
    }
    return -1;
  }

  std::int32_t fifo(std::int32_t rank, const Operand& o, bool receives, std::int32_t operand,
                    std::int32_t lane) {
    std::int32_t& known = fifo_of_operand_[operand];
    if (known < 0) {
      const std::uint64_t source = receives ? o.peer : rank, destination = receives ? rank : o.peer;
      const std::uint64_t key = (source * programs_.size() + destination) << 16 | o.channel;
      const auto [entry, fresh] = fifo_ids_.try_emplace(key, static_cast<std::int32_t>(flat_.fifos.size()));
      if (fresh)
        flat_.fifos.push_back(
            {static_cast<std::int32_t>(source), static_cast<std::int32_t>(destination), o.channel});
      known = entry->second;
    }
    Fifo& f = flat_.fifos[known];
    ++(receives ? f.receives : f.sends);
    std::int32_t& user = receives ? f.receiver : f.sender;
    if (user == -1) user = lane;
    if (user != lane) user = kSeveral, flat_.shared_fifos = true;
    return known;
  }

  std::span<const Program> programs_;
  FlatOptions options_;
  Flat& flat_;
  std::vector<Finding>& findings_;
  std::unordered_map<std::uint64_t, std::int32_t> fifo_ids_;
  std::vector<std::int32_t> fifo_of_operand_;
};

}  // namespace

bool flatten(std::span<const Program> programs, FlatOptions options, Flat* flat,
             std::vector<Finding>* findings, std::size_t limit) {
  for (const Program& program : programs) {
    const std::vector<Finding> found = check(program, limit - std::min(limit, findings->size()));
    findings->insert(findings->end(), found.begin(), found.end());
    if (findings->size() >= limit) break;
  }
  if (!findings->empty() || !same_schedule(programs, findings)) return false;
  *flat = {};
  flat->programs = programs;
  flat->slices = options.slices;
  return Flattener(programs, options, flat, findings).run();
}

std::string Flat::describe(std::int32_t node) const {
  const FlatLane& lane = lane_of(node);
  const Node& n = nodes[node];
  const Program& program = programs[lane.rank];
  std::string text = fmt::format("rank {} lane {} step {} ({}", lane.rank, lane.number, number_of(node),
                                 name_of(*n.step, program.operands.data() + n.step->first_operand));
  for (int k = 0; k < operand_count(node); ++k) {
    if (k == 8) return text + " ...)";
    const FlatOperand& o = operands[n.first_operand + k];
    text += k == 0 ? " " : k == n.step->sources ? " -> " : ", ";
    if (o.fifo >= 0) {
      const Fifo& f = fifos[o.fifo];
      text += k < n.step->sources ? fmt::format("from {}", f.source) : fmt::format("to {}", f.destination);
      if (f.channel != 0) text += fmt::format(" channel {}", f.channel);
      continue;
    }
    const Operand& stored = program.operands[n.step->first_operand + k];
    const RankCells& c = cells[lane.rank];
    const std::int32_t base = stored.buffer == Buffer::input    ? c.input
                              : stored.buffer == Buffer::output ? c.output
                                                                : c.scratch;
    text += fmt::format("{} {}", name_of(stored.buffer), o.cell - base);
    if (n.step->width > 1) text += fmt::format("..{}", o.cell - base + n.step->width - 1);
  }
  return text + ")";
}

std::string Flat::describe_cell(std::int32_t cell) const {
  std::size_t rank = 0;
  while (rank + 1 < cells.size() && cell >= cells[rank].end) ++rank;
  const RankCells& c = cells[rank];
  const Program& p = programs[rank];
  if (cell >= c.scratch) return fmt::format("scratch {} of rank {}", cell - c.scratch, rank);
  if (cell >= c.output && cell - c.output < p.chunks_of(Buffer::output))
    return fmt::format("output {} of rank {}", cell - c.output, rank);
  return fmt::format("input {} of rank {}", cell - c.input, rank);
}

std::string Flat::describe_fifo(std::int32_t fifo) const {
  const Fifo& f = fifos[fifo];
  return fmt::format("rank {} to rank {} on channel {}", f.source, f.destination, f.channel);
}

}  // namespace tamaki::proof
