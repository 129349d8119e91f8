#pragma once
// The programs of all ranks as flat arrays: loops unrolled, places turned into numbered cells, pairs of
// ranks and channels into numbered FIFOs. What every part of the proof works on.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "schedule/check.hpp"
#include "schedule/logical.hpp"
#include "schedule/program.hpp"

namespace tamaki::proof {

/// A place (fifo < 0: `width` cells from `cell`), or a message (fifo >= 0; for a destination `cell` is
/// where the hint says that it lands, -1 without one).
struct FlatOperand {
  std::int32_t fifo = -1;
  std::int32_t cell = -1;
};

/// One expanded step of one rank. Nodes of a lane are consecutive.
struct Node {
  const Step* step = nullptr;
  std::int32_t first_operand = 0;  // in Flat::operands
  std::int32_t extent_chunk = 0;
  std::int32_t lane = 0;  // in Flat::lanes
};

struct FlatLane {
  std::int32_t rank = 0;
  std::int32_t number = 0;  // within the rank
  std::int32_t begin = 0;   // nodes [begin, end)
  std::int32_t end = 0;
};

struct Fifo {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  std::int32_t channel = 0;
  std::int32_t sends = 0;  // per slice
  std::int32_t receives = 0;
  std::int32_t sender = -1;  // lane that sends, kSeveral, or -1
  std::int32_t receiver = -1;
};
inline constexpr std::int32_t kSeveral = -2;

/// Where the buffers of a rank begin in the numbering of cells.
struct RankCells {
  std::int32_t input = 0, output = 0, scratch = 0, end = 0;
};

struct Flat {
  std::span<const Program> programs;
  std::vector<Node> nodes;
  std::vector<FlatOperand> operands;
  std::vector<std::int32_t> owner;  // of an operand: its node
  std::vector<FlatLane> lanes;
  std::vector<std::int32_t> first_lane;  // of each rank
  std::vector<Fifo> fifos;
  std::vector<RankCells> cells;  // of each rank
  std::int32_t cell_count = 0;
  int slices = 1;
  bool shared_fifos = false;  // some FIFO is used by several lanes of one rank

  const FlatLane& lane_of(std::int32_t node) const { return lanes[nodes[node].lane]; }
  const Program& program_of(std::int32_t node) const { return programs[lane_of(node).rank]; }
  int operand_count(std::int32_t node) const {
    const Step& s = *nodes[node].step;
    return s.sources + s.destinations;
  }
  /// Node of step `d.step` of lane `d.lane` of the rank and slice that `node` belongs to.
  std::int32_t node_of(const Dependency& d, std::int32_t node) const {
    const FlatLane& own = lane_of(node);
    const FlatLane& other = lanes[first_lane[own.rank] + d.lane];
    const std::int32_t slice = slices == 1 ? 0 : (node - own.begin) / ((own.end - own.begin) / slices);
    return other.begin + slice * ((other.end - other.begin) / slices) + d.step;
  }
  /// Expanded step number within the lane (of one slice).
  std::int32_t number_of(std::int32_t node) const {
    const FlatLane& lane = lane_of(node);
    return (node - lane.begin) % ((lane.end - lane.begin) / slices);
  }
  Finding finding(std::int32_t node, std::string text) const {
    const FlatLane& lane = lane_of(node);
    return {lane.rank, lane.number, number_of(node), std::move(text)};
  }
  /// "rank 2 lane 0 step 5 (recv_reduce from 1, input 3 -> output 3)".
  std::string describe(std::int32_t node) const;
  /// "input 3 of rank 2".
  std::string describe_cell(std::int32_t cell) const;
  std::string describe_fifo(std::int32_t fifo) const;
};

struct FlatOptions {
  bool in_place = false;  // input and output share cells in the collective's in-place form
  int slices = 1;         // copies of each lane's steps, one after the other
};

/// Refuses programs that check() or this function finds at fault; the findings are appended. `programs`
/// must outlive the result and be one a rank, in order.
bool flatten(std::span<const Program> programs, FlatOptions options, Flat* flat,
             std::vector<Finding>* findings, std::size_t limit);

}  // namespace tamaki::proof
