#pragma once
// The schedule: one rank's part of a collective, as plain data.
//
// Words (one sense each, everywhere):
//   chunk    unit of a schedule: the message is cut into chunks; sizes in a schedule are numbers of chunks, never
//            bytes, so one program serves every message size of its class
//   step     one action on `width` consecutive chunks: destinations = reduction of sources
//   lane     an ordered stream of steps of one rank; lanes of a rank run concurrently
//   channel  names a FIFO between an ordered pair of ranks; messages of (source, destination, channel) arrive in
//            order. A channel is used, in each direction, by one lane of a rank (or by lanes that order each other).
//            A FIFO has room for at least two messages (one is too few for any ring of fused steps: every rank would
//            wait for room made by the next); programs must not need more
//   slice    unit of pipelining inside a chunk, chosen at run time: the whole program runs once per slice, each lane
//            by itself and in order, so a chunk of any size moves through slots of fixed size
//
// Which bytes a chunk is depends on the collective (p ranks, own rank r, K = chunks per block):
//   allreduce, reduce, broadcast   input and output: C chunks, the same cut of the same vector
//   allgather, gather              input: K chunks of the own block; output: p*K, block b part k = chunk b*K + k
//   reduce_scatter, scatter        input: p*K; output: K
//   alltoall                       input and output: p*K
//   barrier                        no input, no output; scratch chunks of one byte, readable from the start: their
//                                  value means nothing, only the order of messages counts
// The vector (allreduce...) or block is cut evenly, in whole elements, last chunks smaller or empty; a chunk that is
// empty moves nothing. Scratch chunks have room for the largest chunk.
//
// What a program may assume: input is readable from the start, output and scratch hold nothing. What it must
// achieve: see src/verify. Programs are built per rank, in time and memory proportional to that rank's own steps.

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace tamaki {

enum class Buffer : std::uint8_t { input, output, scratch, none };

/// One side of a step: chunks of a buffer of this rank, or a message from or to a peer.
struct Operand {
  enum class Kind : std::uint8_t { local, peer };
  Kind kind = Kind::local;
  /// local: where. peer, as destination: where the receiver's matching step puts it, if that step is a plain receive
  /// into this place (a hint that allows writing there directly; proved by the verifier), else `none`. peer, as
  /// source: none.
  Buffer buffer = Buffer::none;
  std::uint16_t channel = 0;  // peer only
  std::int32_t peer = -1;     // peer only
  std::int32_t chunk = 0;     // first chunk in `buffer`
  std::int32_t stride = 0;    // added to `chunk` per iteration of the enclosing loop, see rotate()
  bool operator==(const Operand&) const = default;
};

/// How many bytes a step moves: those of chunks [chunk, chunk + width) of `buffer` (input or output; scratch for
/// barrier). Matching steps of two ranks name chunks of equal size. Sizes of input and output chunks are defined on
/// every rank, also where the buffer itself does not exist (a gather's output away from the root).
struct Extent {
  Buffer buffer = Buffer::none;
  std::int32_t chunk = 0;
  std::int32_t stride = 0;
  bool operator==(const Extent&) const = default;
};

/// "Lane `lane` has completed its expanded step number `step` for this slice" (counting loop iterations).
struct Dependency {
  std::int32_t lane = 0;
  std::int32_t step = 0;
  bool operator==(const Dependency&) const = default;
};

/// destinations = sources[0] op sources[1] op ... (left to right), for `width` consecutive chunks of every operand.
/// One source: a move. Destinations may be the same place as a local source; otherwise operands do not overlap.
/// The operands lie in Program::operands: sources from `first_operand`, then destinations.
struct Step {
  std::int32_t first_operand = 0;
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::int32_t width = 1;
  Extent extent;
  std::int32_t first_dependency = 0;  // in Program::dependencies
  std::uint16_t dependencies = 0;
  /// The result is complete: apply what the operation does at the end (avg divides by the number of ranks). Set on
  /// exactly one step along the way of each result chunk, the one that combines its last contribution.
  bool finish = false;
  bool operator==(const Step&) const = default;
};

/// Steps [begin, end) of Program::steps, `times` times over. In iteration i each chunk number c with stride s stands
/// for rotate(c, i * s, modulus).
struct Block {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t times = 1;
  std::int32_t modulus = 0;  // 0: plain addition
  bool operator==(const Block&) const = default;
};

struct Lane {
  std::vector<Block> blocks;
  bool operator==(const Lane&) const = default;
};

/// Rotation by `by` inside the aligned group of `modulus` chunks that `chunk` lies in.
constexpr std::int32_t rotate(std::int32_t chunk, std::int64_t by, std::int32_t modulus) {
  if (modulus == 0) return static_cast<std::int32_t>(chunk + by);
  const std::int32_t base = chunk / modulus * modulus;
  std::int64_t in = (chunk - base + by) % modulus;
  if (in < 0) in += modulus;
  return base + static_cast<std::int32_t>(in);
}

struct Program {
  std::string algorithm;
  Collective collective = Collective::allreduce;
  std::int32_t ranks = 1;
  std::int32_t rank = 0;
  std::int32_t root = 0;  // reduce, broadcast, gather, scatter
  /// C for allreduce, reduce, broadcast; K for block collectives; scratch tokens for barrier. Equal on all ranks.
  std::int32_t chunks = 1;
  std::int32_t scratch_chunks = 0;
  /// Largest width of any step of any rank of this schedule (a message holds up to this many chunks). Equal on all
  /// ranks.
  std::int32_t max_width = 1;
  std::vector<Operand> operands;
  std::vector<Step> steps;
  std::vector<Dependency> dependencies;
  std::vector<Lane> lanes;
  bool operator==(const Program&) const = default;

  std::int32_t chunks_of(Buffer buffer) const;
};

/// A step with loop iterations resolved. `sources` and `destinations` are valid until the next call.
struct ExpandedStep {
  std::int32_t lane = 0;
  std::int32_t index = 0;  // expanded number within the lane
  const Step* step = nullptr;
  Extent extent;
  const Operand* sources = nullptr;
  const Operand* destinations = nullptr;
};

/// Walks one lane of a program step by step, loops unrolled on the fly; memory does not grow with iterations.
class LaneCursor {
 public:
  LaneCursor(const Program& program, std::int32_t lane) : program_(&program), lane_(lane) { settle(); }
  bool done() const { return block_ >= program_->lanes[lane_].blocks.size(); }
  /// The current step. Valid until advance() or another current() of this cursor.
  const ExpandedStep& current();
  void advance();

 private:
  void settle();  // skips empty blocks
  const Program* program_;
  std::int32_t lane_;
  std::size_t block_ = 0;
  std::int32_t iteration_ = 0;
  std::int32_t in_block_ = 0;
  std::int32_t index_ = 0;
  ExpandedStep view_;
  std::vector<Operand> resolved_;
};

/// Number of expanded steps of a lane.
std::int64_t expanded_steps(const Program& program, std::int32_t lane);

/// Name of a step in the field's words: send, recv, recv_reduce, copy, reduce, recv_reduce_send, recv_copy_send,
/// recv_reduce_copy_send.
const char* name_of(const Step& step, const Operand* operands);

}  // namespace tamaki
