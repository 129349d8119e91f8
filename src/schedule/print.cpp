#include "schedule/print.hpp"

#include <fmt/format.h>

#include "schedule/check.hpp"
#include "schedule/logical.hpp"

namespace tamaki {
namespace {

std::string with_stride(const Operand& o, std::int32_t width, bool source, bool strides) {
  std::string text = describe(o, width, source);
  if (strides && o.stride != 0) text += fmt::format(" ({:+})", o.stride);
  return text;
}

/// The extent is that of the first local input or output operand, as the Builder sets it.
bool ordinary_extent(const Extent& extent, const Operand* operands, int count) {
  for (int k = 0; k < count; ++k) {
    const Operand& o = operands[k];
    if (o.kind != Operand::Kind::local || (o.buffer != Buffer::input && o.buffer != Buffer::output))
      continue;
    return extent.buffer == o.buffer && extent.chunk == o.chunk && extent.stride == o.stride;
  }
  return false;
}

std::string line(const Program& program, const Step& s, const Operand* operands, const Extent& extent,
                 std::int32_t number, bool strides) {
  std::string moves;
  for (int k = 0; k < s.sources + s.destinations; ++k) {
    moves += k == 0 ? "" : k == s.sources ? " -> " : ", ";
    moves += with_stride(operands[k], s.width, k < s.sources, strides);
  }
  std::string text = fmt::format("  {:<5} {:<22} {}", number, name_of(s, operands), moves);
  if (s.finish) text += "  finish";
  if (s.width != 1) text += fmt::format("  width {}", s.width);
  if (!ordinary_extent(extent, operands, s.sources + s.destinations)) {
    const Operand place{.buffer = extent.buffer, .chunk = extent.chunk, .stride = extent.stride};
    text += "  size of " + with_stride(place, s.width, true, strides);
  }
  for (int d = 0; d < s.dependencies; ++d) {
    const Dependency& dependency = program.dependencies[s.first_dependency + d];
    text += fmt::format("{}{}:{}", d == 0 ? "  after " : ", ", dependency.lane, dependency.step);
  }
  return text + "\n";
}

std::string header(const Program& p) {
  std::string text = fmt::format("{} {}: rank {} of {}, {} chunk{}", name_of(p.collective), p.algorithm,
                                 p.rank, p.ranks, p.chunks, p.chunks == 1 ? "" : "s");
  if (has_root(p.collective)) text += fmt::format(", root {}", p.root);
  if (p.scratch_chunks > 0) text += fmt::format(", {} scratch", p.scratch_chunks);
  if (p.max_width > 1) text += fmt::format(", width up to {}", p.max_width);
  return text + "\n";
}

void print_compact(const Program& p, const Lane& lane, std::string* text) {
  std::int32_t number = 0;
  for (const Block& block : lane.blocks) {
    if (block.times <= 0) continue;
    if (block.times > 1) {
      *text += fmt::format("  repeat {} times", block.times);
      if (block.modulus > 0) *text += fmt::format(", rotating in groups of {}", block.modulus);
      *text += "\n";
    }
    for (std::int32_t i = block.begin; i < block.end; ++i) {
      const Step& s = p.steps[i];
      *text += (block.times > 1 ? "  " : "") + line(p, s, p.operands.data() + s.first_operand, s.extent,
                                                    number + i - block.begin, block.times > 1);
    }
    number += block.times * (block.end - block.begin);
  }
}

}  // namespace

std::string print(const Program& program, PrintLoops loops) {
  std::string text = header(program);
  for (std::int32_t l = 0; l < static_cast<std::int32_t>(program.lanes.size()); ++l) {
    text += fmt::format("lane {}\n", l);
    if (loops == PrintLoops::compact) {
      print_compact(program, program.lanes[l], &text);
      continue;
    }
    for (LaneCursor cursor(program, l); !cursor.done(); cursor.advance()) {
      const ExpandedStep& s = cursor.current();
      text +=
          line(program, *s.step, s.sources, s.extent, s.index, false);  // destinations follow the sources
    }
  }
  return text;
}

std::string print(std::span<const Program> programs, PrintLoops loops) {
  std::string text;
  for (const Program& program : programs) text += (text.empty() ? "" : "\n") + print(program, loops);
  return text;
}

}  // namespace tamaki
