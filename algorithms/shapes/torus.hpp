#pragma once
// The multi-port bucket on a torus or mesh of any dimensions: the message is cut into streams, each of
// which goes through the dimensions one after the other (a ring reduce-scatter in each, then the allgathers
// in reverse), and different streams use different links at any time. Jain and Sabharwal, Optimal bucket
// algorithms for large MPI collectives on torus interconnects, ICS 2010; Sack and Gropp, Collective
// algorithms for multiported torus networks, ACM TOPC 1 (2015).
//
// Where the sides are equal, one stream for every link (2 for each dimension, 1 where the side is 2) that
// starts there and goes on cyclically keeps all links busy, and that is the plain bucket. Where they are
// not, a stream that starts in a short dimension leaves more for its later ones, and streams meet on a
// link: each has a lane of its own there, so that none waits for another's latency, and a chain is one
// stream's.
//
// With more than one piece an allreduce has more streams than links, chosen so that the links' loads are
// equal, and is a pipeline besides: each link has three lanes for reduce-scatters and one for allgathers,
// which serve their parts of the streams in the order that list scheduling finds. While one of the three
// combines what has come, the messages of the others are on the wire, and while later streams are still
// added up, the results of earlier ones go round. So neither the wire nor the processor waits for the
// other, where the plain bucket takes the sum of both.

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tamaki {

/// A rank's place in the grid of a topology: dimensions of one point left out.
class Grid {
 public:
  /// `topology` has a grid of its ranks (see refuse_without_grid).
  explicit Grid(const Topology& topology);

  int dimensions() const { return static_cast<int>(sizes_.size()); }
  int size(int dimension) const { return sizes_[dimension]; }
  /// Of a dimension: positions whose coordinates differ by one there differ by that much.
  int stride(int dimension) const { return strides_[dimension]; }
  bool wraps(int dimension) const { return wraps_[dimension]; }
  int points() const { return points_; }
  int ports() const { return ports_; }
  /// Position and rank are the same.
  bool row_major() const { return rank_at_ == nullptr; }

  int rank_at(int position) const { return rank_at_ == nullptr ? position : (*rank_at_)[position]; }
  /// O(ranks) unless row_major().
  int position_of(int rank) const;
  int coordinate(int position, int dimension) const {
    return position / strides_[dimension] % sizes_[dimension];
  }
  /// The position with coordinate `value` (any integer, taken round the dimension).
  int with(int position, int dimension, int value) const {
    const int a = sizes_[dimension];
    return position + ((value % a + a) % a - coordinate(position, dimension)) * strides_[dimension];
  }

 private:
  std::vector<int> sizes_, strides_;
  std::vector<bool> wraps_;
  int points_ = 1, ports_ = 1;
  const std::vector<std::int32_t>* rank_at_ = nullptr;  // of the topology
};

/// Empty where the topology has a grid of `problem.ranks` ranks, else why no algorithm on grids can serve.
std::string refuse_without_grid(const Topology& topology, const Problem& problem);

/// That, and why a rank's position in the grid is not its number.
std::string refuse_without_row_major_grid(const Topology& topology, const Problem& problem);

/// Whether a dimension has a link from its last point to its first that is not the one between them.
inline bool is_ring(const Grid& grid, int dimension) {
  return grid.wraps(dimension) && grid.size(dimension) > 2;
}

/// As refuse_without_grid(), and why the plan of the bucket would have too many chunks.
std::string refuse_without_torus_plan(const Topology& topology, const Problem& problem);

struct TorusStream {
  std::vector<int> order;  // of dimensions, of its reduce-scatters
  int way = 1;             // +1 or -1; +1 in dimensions with one link only
};

/// One stage of one stream: a ring in one dimension.
struct TorusTask {
  int stream = 0;
  int stage = 0;        // position of its dimension in the stream's order
  bool gather = false;  // allgather, else reduce-scatter
  int link = 0;         // dimension * 2 + (way is -1)
  int lane = 0;
  int channel = 0;  // of the link; one for each lane of it
  int after = -1;   // number of the stream's task before, -1: its first
};

/// The other blocks that a stage treats alike: calls body(position, number) for each combination of
/// coordinates in the dimensions after the stage's, number by number; in all other dimensions the position
/// is `here`.
template <class Body>
void each_position_after(const Grid& grid, const TorusStream& stream, int stage, int here,
                         const Body& body) {
  int count = 1;
  for (int i = stage + 1; i < grid.dimensions(); ++i) count *= grid.size(stream.order[i]);
  for (int number = 0; number < count; ++number) {
    int position = here, rest = number;
    for (int i = grid.dimensions() - 1; i > stage; --i) {
      const int d = stream.order[i];
      position = grid.with(position, d, rest % grid.size(d));
      rest /= grid.size(d);
    }
    body(position, number);
  }
}

enum class TorusParts { reduce_scatter, allgather, both };

struct TorusPlan {
  std::vector<TorusStream> streams;
  std::vector<TorusTask> tasks;  // in an order that all lanes and `after` agree with
  int lanes = 1;                 // at most `ports` for each of a link's lanes

  /// Direction of travel of a stream in a dimension.
  static int way_in(const Grid& grid, const TorusStream& stream, int dimension);
  /// Points that share a stream's coordinates in order[0..stage]: what a rank still holds of the stream
  /// after that stage, and the width of its messages, in chunks of 1/points of the stream.
  static int width(const Grid& grid, const TorusStream& stream, int stage);
};

/// `pieces`: of both, 1 is the plain bucket, and k > 1 the pipeline with k streams a link at most; of the
/// others as many times the streams. O(streams^2 dimensions^2).
TorusPlan torus_plan(const Grid& grid, TorusParts parts, int pieces);

/// Messages on the longest chain, where a task needs `rounds_of(task)` one after the other.
template <class Rounds>
std::int64_t torus_rounds(const TorusPlan& plan, const Rounds& rounds_of) {
  std::vector<std::int64_t> lane_free(static_cast<std::size_t>(plan.lanes), 0), end;
  std::int64_t last = 0;
  for (const TorusTask& task : plan.tasks) {
    std::int64_t& free = lane_free[task.lane];
    if (task.after >= 0 && end[task.after] > free) free = end[task.after];
    free += rounds_of(task);
    end.push_back(free);
    if (free > last) last = free;
  }
  return last;
}

}  // namespace tamaki
