#pragma once
// A plan: one rank's program, bound to the sizes of a call and to connections, as flat arrays of small records. Made
// once per (collective, sizes, type, op, root), then executed any number of times on any buffers.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "execute/kernels.hpp"
#include "execute/layout.hpp"
#include "schedule/program.hpp"
#include "transports/transport.hpp"

namespace tamaki {

/// Most operands of a step whose chunks lie apart in memory.
inline constexpr int kMostScattered = 16;

struct PlanOperand {
  bool peer = false;
  bool lands = false;            // peer destination: its place in the peer's output is known and contiguous
  Buffer buffer = Buffer::none;  // local
  std::int32_t chunk = 0;        // local
  std::int32_t link = -1;        // peer: number in Plan::links
  std::int32_t peer_index = -1;  // peer: number in Plan::peers
  std::uint64_t offset = 0;      // local: of the first chunk in its buffer; lands: in the peer's output
};

struct PlanStep {
  std::uint32_t first_operand = 0;
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint16_t peer_sources = 0;
  std::uint16_t peer_destinations = 0;
  std::int32_t width = 1;
  Buffer extent_buffer = Buffer::none;
  std::int32_t extent_chunk = 0;
  std::uint32_t first_dependency = 0;
  std::uint16_t dependencies = 0;
  std::int16_t raw_source = -1;  // number of the source that reads the raw input, -1: none
  bool finish = false;
  bool contiguous = true;        // every local operand is one range in every slice
  bool needs_kernel = false;     // more than a copy
  std::uint64_t bytes = 0;       // of the whole step (all chunks, all slices)
};

struct Plan {
  std::string algorithm;
  std::string title;  // "allreduce of 1024 x f32, sum (ring)", for messages
  Collective collective = Collective::allreduce;
  std::vector<PlanStep> steps;  // lane after lane, loops unrolled
  std::vector<PlanOperand> operands;
  std::vector<Dependency> dependencies;
  struct LaneRange {
    std::uint32_t begin = 0, end = 0;
  };
  std::vector<LaneRange> lanes;
  std::vector<Link*> links;
  std::vector<int> peers;  // ranks
  Layout layout;
  std::uint32_t slices = 1;
  std::uint64_t slice_bytes = 0;   // of one chunk in one slice
  std::uint64_t scratch_bytes = 0;
  std::uint32_t most_operands = 0;  // of any step
  std::uint32_t tag = 0;            // digest of what all ranks must agree on
  std::size_t element = 1;
  ReduceKernel kernel = nullptr;
  bool direct = false;           // out of place
  bool direct_in_place = false;
  bool small = false;            // no message is larger than a mailbox
  /// Private memory may be copied by process_vm_readv. Not where data is reduced: slots stay in the cache on their way
  /// into the reduction, a copy by the kernel goes through memory once more (64 MiB allreduce on 2 ranks: 37 ms so,
  /// 9 ms through slots).
  bool single_copy = false;
  bool stream = false;           // outputs are larger than the caches
  std::uint64_t input_bytes = 0, output_bytes = 0;  // extents of the buffers
};

struct PlanRequest {
  const Program* program = nullptr;
  Shape shape;
  OpContext op;
  bool direct = false;
  bool direct_in_place = false;
  std::uint32_t tag = 0;
  std::size_t slot_bytes = 0;
  std::string title;
  /// Makes or finds the link to a peer on a channel.
  std::function<Result<Link*>(int peer, int channel)> connect;
};

Result<Plan> compile_plan(const PlanRequest& request);

}  // namespace tamaki
