#pragma once
// Which bytes a chunk is: the cut of one call's buffers into the chunks of a program.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/program.hpp"

namespace tamaki {

/// Sizes of one call, in bytes. Uneven collectives give each block its place.
struct Shape {
  std::size_t element = 1;   // bytes
  std::size_t bytes = 0;     // allreduce, reduce, broadcast: of the vector; others: of one (even) block
  bool uneven = false;
  struct Block {
    std::size_t offset = 0, bytes = 0;
  };
  std::vector<Block> input_blocks, output_blocks;  // uneven only: of the buffers that have one block per rank
  std::size_t own_input = 0, own_output = 0;       // uneven only: bytes of the buffers that have one block
};

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Layout {
  std::vector<ByteRange> input, output;  // chunk -> place; as many as Program::chunks_of()
  std::vector<ByteRange> peer_output;    // output of a rank that has one, where it is the same on all ranks; else empty
  std::uint64_t scratch_stride = 0;  // bytes from one scratch chunk to the next
  std::uint64_t largest = 0;         // bytes of the largest chunk

  ByteRange of(Buffer buffer, std::int32_t chunk, std::uint64_t scratch_bytes) const {
    if (buffer == Buffer::input) return input[static_cast<std::size_t>(chunk)];
    if (buffer == Buffer::output) return output[static_cast<std::size_t>(chunk)];
    return {static_cast<std::uint64_t>(chunk) * scratch_stride, scratch_bytes};
  }
};

/// Even cut of `bytes` (whole elements) into `chunks`: equal sizes, rounded up to cache lines where chunks are large,
/// the last ones smaller or empty.
ByteRange cut(std::size_t bytes, std::size_t element, std::int32_t chunks, std::int32_t chunk);

Layout make_layout(const Program& program, const Shape& shape);

}  // namespace tamaki
