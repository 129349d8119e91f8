#pragma once
// What the chunks of a program are, apart from where they lie: the names under which ranks agree on data
// and sizes.

#include <cstdint>

#include "schedule/program.hpp"

namespace tamaki {

/// Chunks that `buffer` has in the collective's shape on the rank where it exists (the root, for rooted
/// collectives): the range of chunk numbers of an Extent, which may name sizes of buffers that this rank
/// does not have. Scratch: the program's own.
constexpr std::int64_t shape_chunks(const Program& program, Buffer buffer) {
  const std::int64_t all = std::int64_t{program.ranks} * program.chunks;
  const bool input = buffer == Buffer::input;
  if (buffer == Buffer::none) return 0;
  if (buffer == Buffer::scratch) return program.scratch_chunks;
  switch (program.collective) {
    case Collective::allgather:
    case Collective::gather:
      return input ? program.chunks : all;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return input ? all : program.chunks;
    case Collective::alltoall:
      return all;
    case Collective::barrier:
      return 0;
    default:
      return program.chunks;
  }
}

/// Number of a logical chunk, the same on all ranks: chunks of equal number hold parts of one result and
/// have equal sizes. Vector collectives: the chunk number. Block collectives: block * K + part. alltoall:
/// (sender * p + receiver) * K + part. Meaningless for scratch (0).
constexpr std::int64_t logical_chunk(const Program& program, Buffer buffer, std::int64_t chunk) {
  if (buffer != Buffer::input && buffer != Buffer::output) return 0;
  const std::int64_t K = program.chunks, own = program.rank * K;
  const bool input = buffer == Buffer::input;
  switch (program.collective) {
    case Collective::allgather:
    case Collective::gather:
      return input ? own + chunk : chunk;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return input ? chunk : own + chunk;
    case Collective::alltoall: {
      const std::int64_t p = program.ranks, other = chunk / K, part = chunk % K;
      return input ? (program.rank * p + other) * K + part : (other * p + program.rank) * K + part;
    }
    default:
      return chunk;
  }
}

constexpr bool has_blocks(Collective c) {
  return c == Collective::allgather || c == Collective::gather || c == Collective::reduce_scatter ||
         c == Collective::scatter || c == Collective::alltoall;
}

/// Logical chunks of equal size class have equal sizes when all blocks have.
constexpr std::int64_t size_class(const Program& program, std::int64_t logical) {
  return has_blocks(program.collective) ? logical % program.chunks : logical;
}

/// Collectives in which one rank gives or receives everything.
constexpr bool has_root(Collective c) {
  return c == Collective::reduce || c == Collective::broadcast || c == Collective::gather ||
         c == Collective::scatter;
}

}  // namespace tamaki
