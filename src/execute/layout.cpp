#include "execute/layout.hpp"

#include <algorithm>

#include "base/bell.hpp"

namespace tamaki {
namespace {

std::vector<ByteRange> cut_vector(std::size_t bytes, std::size_t element, std::int32_t chunks) {
  std::vector<ByteRange> places(static_cast<std::size_t>(chunks));
  for (std::int32_t c = 0; c < chunks; ++c) places[c] = cut(bytes, element, chunks, c);
  return places;
}

/// `parts` chunks for each of the blocks.
std::vector<ByteRange> cut_blocks(const std::vector<Shape::Block>& blocks, std::size_t element, std::int32_t parts) {
  std::vector<ByteRange> places;
  places.reserve(blocks.size() * static_cast<std::size_t>(parts));
  for (const Shape::Block& block : blocks)
    for (std::int32_t k = 0; k < parts; ++k) {
      ByteRange place = cut(block.bytes, element, parts, k);
      place.offset += block.offset;
      places.push_back(place);
    }
  return places;
}

std::vector<Shape::Block> even_blocks(std::int32_t ranks, std::size_t bytes) {
  std::vector<Shape::Block> blocks(static_cast<std::size_t>(ranks));
  for (std::size_t b = 0; b < blocks.size(); ++b) blocks[b] = {b * bytes, bytes};
  return blocks;
}

}  // namespace

ByteRange cut(std::size_t bytes, std::size_t element, std::int32_t chunks, std::int32_t chunk) {
  const std::size_t elements = bytes / element;
  std::size_t each = (elements + static_cast<std::size_t>(chunks) - 1) / static_cast<std::size_t>(chunks);
  const std::size_t line = std::max<std::size_t>(1, kLine / element);
  if (each >= 4 * line) each = (each + line - 1) / line * line;
  const std::size_t begin = std::min(elements, each * static_cast<std::size_t>(chunk));
  const std::size_t end = std::min(elements, begin + each);
  return {begin * element, (end - begin) * element};
}

Layout make_layout(const Program& program, const Shape& shape) {
  Layout layout;
  const std::int32_t ranks = program.ranks, parts = program.chunks;
  const auto many = [&](const std::vector<Shape::Block>& uneven) {
    return cut_blocks(shape.uneven ? uneven : even_blocks(ranks, shape.bytes), shape.element, parts);
  };
  const auto one = [&](std::size_t uneven) {
    return cut_vector(shape.uneven ? uneven : shape.bytes, shape.element, parts);
  };
  const bool at_root = program.rank == program.root;
  switch (program.collective) {
    case Collective::allgather:
      layout.input = one(shape.own_input);
      layout.output = many(shape.output_blocks);
      if (!shape.uneven) layout.peer_output = layout.output;
      break;
    case Collective::gather:
      layout.input = one(shape.own_input);
      if (!shape.uneven) layout.peer_output = many({});
      if (at_root) layout.output = many(shape.output_blocks);
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      if (program.collective == Collective::reduce_scatter || at_root) layout.input = many(shape.input_blocks);
      layout.output = one(shape.own_output);
      if (!shape.uneven) layout.peer_output = layout.output;
      break;
    case Collective::alltoall:
      layout.input = many(shape.input_blocks);
      layout.output = many(shape.output_blocks);
      if (!shape.uneven) layout.peer_output = layout.output;
      break;
    case Collective::barrier:
      break;
    case Collective::send_recv:
      layout.input = cut_vector(shape.own_input, shape.element, parts);
      layout.output = cut_vector(shape.own_output, shape.element, parts);
      break;
    default:  // allreduce, reduce, broadcast
      layout.peer_output = cut_vector(shape.bytes, shape.element, parts);
      if (program.chunks_of(Buffer::input) > 0) layout.input = layout.peer_output;
      if (program.chunks_of(Buffer::output) > 0) layout.output = layout.peer_output;
  }
  layout.largest = program.collective == Collective::barrier ? 1 : 0;
  for (const auto* places : {&layout.input, &layout.output, &layout.peer_output})
    for (const ByteRange& place : *places) layout.largest = std::max(layout.largest, place.bytes);
  layout.scratch_stride = (layout.largest + kLine - 1) / kLine * kLine;
  return layout;
}

}  // namespace tamaki
