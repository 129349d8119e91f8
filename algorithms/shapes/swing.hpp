#pragma once
// Swing: reduce-scatter and allgather by steps between ranks at distances 1, 1, 3, 5, 11, ... in turn to
// either side, on one ring or in turn on the rings of a torus's dimensions. De Sensi, Bonato, Saam,
// Hoefler, Swing: short-cutting rings for higher bandwidth allreduce, NSDI 2024. (On one ring it is the
// distance-doubling Bine butterfly: De Sensi et al., Bine trees, SC 2025.)
//
// Seen from the allgather, each block spreads from its root on a tree; the reduce-scatter runs the same
// trees backwards. In an even dimension rank r's peer in step s is r + rho(s) (r even) or r - rho(s) (r
// odd), rho(s) = (1 - (-2)^(s+1)) / 3; with ceil(log2) steps, from the farthest to the nearest, every rank
// is reached, some of them twice where the size is no power of two: the later reach is dropped (in the
// order of the reduce-scatter the earlier one), so that no block is added twice. In an odd dimension the
// last rank stands aside from that: in the allgather's first step it exchanges blocks with each of the
// others directly.
//
// Blocks are numbered so that what a message carries is one range where all sizes are powers of two, and
// few ranges elsewhere.

#include <algorithm>
#include <functional>
#include <vector>

#include "schedule/builder.hpp"

namespace tamaki {

/// One ring of `size` >= 2 members: who gets which member's block when, in the allgather.
class SwingRing {
 public:
  explicit SwingRing(int size);
  int size() const { return size_; }
  int steps() const { return steps_; }
  bool power_of_two() const { return (size_ & (size_ - 1)) == 0; }
  /// Members with which `member` exchanges in step k of the allgather.
  std::vector<int> peers(int member, int k) const;
  /// Step in which `member` gets `block`; -1: it is its own.
  int step_of(int block, int member) const;
  /// Whether `member` gets `block` in step k, from `peer` (one of peers(member, k)).
  bool gets(int block, int member, int peer, int k) const;

  /// Place of a member's block in the numbering of blocks, as digits, most significant first; digit i is
  /// below digits()[i]. The first ones are what the reduce-scatter's first steps split by.
  const std::vector<int>& digits() const { return digits_; }
  int label_of(int member) const;
  /// The member whose label it is.
  int member_of(int label) const;
  /// The same from a table; only where the size is no power of two: there what is exchanged need not be
  /// looked for.
  int member_at(int label) const { return member_at_[label]; }

 private:
  int peer(int member, int step) const;  // of the even part; `step` of the reduce-scatter

  int size_, even_, steps_ = 0;  // even_: members that swing, size or size - 1
  int twos_ = 0, third_ = 1;     // see label_of()
  std::vector<int> reached_;     // from member 0, at each distance; none where the size is a power of two
  std::vector<int> digits_, member_at_;
};

/// Consecutive blocks.
struct BlockRun {
  int begin = 0, count = 0;
};

/// What one rank exchanges with another in one step; blocks numbered by SwingGrid::block_of.
struct SwingExchange {
  int peer = 0;                        // position
  std::vector<BlockRun> given, taken;  // in the reduce-scatter; the other way round in the allgather
};

/// Swing on a grid of rings; positions are row-major.
class SwingGrid {
 public:
  /// `first`: the dimension that the reduce-scatter begins with. `mirrored`: all steps go the other way
  /// round.
  enum class Side { plain, mirrored };
  SwingGrid(std::vector<int> sizes, int first, Side side);

  int points() const { return points_; }
  bool powers_of_two() const;
  /// Steps of the reduce-scatter, in order; each with the exchanges of the rank at `position`. The
  /// allgather is the same backwards.
  std::vector<std::vector<SwingExchange>> steps_at(int position) const;
  int block_of(int position) const;
  int position_of(int block) const;
  /// No message of any rank has more blocks.
  int widest() const { return points_ > 1 ? points_ / 2 : 1; }

 private:
  struct Set {  // of members of one ring, by their labels: [begin, end), or counts of those below each
                // label
    int begin = 0, end = 0;
    std::vector<int> below;
    int count(int first, int size) const {
      if (below.empty()) return std::max(0, std::min(end, first + size) - std::max(begin, first));
      return below[first + size] - below[first];
    }
  };
  int member(int position, int dimension) const;
  int position(int position, int dimension, int member) const;
  void runs(const std::vector<const Set*>& sets, std::vector<BlockRun>* found) const;

  std::vector<SwingRing> rings_;
  std::vector<int> strides_;
  int points_ = 1;
  Side side_;
  struct Step {
    int dimension = 0, number = 0;  // of the reduce-scatter
  };
  std::vector<Step> steps_;
  struct Digit {
    int dimension = 0, size = 1;
  };
  std::vector<Digit> digits_;  // of block numbers, most significant first
};

using RankAt = std::function<int(int position)>;

/// Adds an allreduce of chunks [begin, begin + points) to the lane of the rank at `here`. Where a size is
/// no power of two the input is copied to the output first: at most grid.widest() chunks a step.
void swing_allreduce(Builder::LaneBuilder& lane, const SwingGrid& grid, int here, int begin,
                     const RankAt& rank_at);

/// Adds an allgather of one chunk of each rank. Blocks are ranks' numbers here, so that messages are ranges
/// of the output: before the exchanges each rank is sent the block that it stands for in them, where that
/// is not its own.
void swing_allgather(Builder::LaneBuilder& lane, const SwingGrid& grid, int here, const RankAt& rank_at);

/// The same backwards; uses scratch chunks [0, points).
void swing_reduce_scatter(Builder::LaneBuilder& lane, const SwingGrid& grid, int here,
                          const RankAt& rank_at);

/// Whether in these two any rank stands for another's block.
bool swing_moves_blocks(const SwingGrid& grid, const RankAt& rank_at);

}  // namespace tamaki
