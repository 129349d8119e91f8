#pragma once
// What one measurement calls: a collective at a size, as counts, buffers and the data that goes in and must come out.

#include <cstddef>
#include <string_view>
#include <vector>

#include "perf/values.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::tools {

/// The collectives that perf knows; *v: blocks of unequal size.
enum class Kind {
  allreduce, reduce, broadcast, allgather, reduce_scatter, gather, scatter, alltoall, barrier, sendrecv,
  allgatherv, reduce_scatterv, gatherv, scatterv, alltoallv,
};
inline constexpr int kKinds = 15;
std::string_view name_of(Kind kind);
/// "allreduce, reduce, ...".
std::string kind_names();
bool parse_kind(std::string_view name, Kind* kind);
bool reduces(Kind kind);
bool has_root(Kind kind);
/// The kind without v, as the library names it.
Collective collective_of(Kind kind);

/// Elements [at, at + count) of a buffer.
struct Segment {
  enum class What { moved, contributed, result } what = What::moved;
  std::size_t at = 0;
  std::size_t count = 0;
  int source = 0;         // moved: whose data; contributed: which rank's
  int block = 0;          // moved: for whom
  std::size_t start = 0;  // number of the first element in its table
};

struct Shape {
  Kind kind = Kind::allreduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int root = 0, rank = 0, ranks = 1;
  std::size_t bytes = 0;  // what the table calls the size: of the largest buffer of any rank
  std::size_t count = 0;  // elements: of the vector, or of one block (v: of the mean block)
  std::size_t send_elements = 0, recv_elements = 0;  // of this rank's buffers
  std::vector<Segment> send_data, recv_data;         // what goes in; what must come out (elsewhere: untouched)
  bool in_place = false;           // there is an in-place form
  std::size_t send_in_recv = 0;    // where the send buffer starts in the recv buffer, in place, or
  std::size_t recv_in_send = 0;    // the other way round,
  bool recv_larger = true;         // by which of them holds the other
  std::vector<std::size_t> send_counts, recv_counts;  // v
};

/// `bytes` is rounded down to whole elements (blocks: of every rank), at least one of each.
Shape make_shape(Kind kind, DataType type, ReduceOp op, int root, int rank, int ranks, std::size_t bytes);

/// The blocking call. `send` and `recv` as the shape says.
tmkResult_t call(const Shape& shape, const void* send, void* recv, tmkComm_t comm);

/// Bytes a rank moves over the bus for each byte of `bytes`, as nccl-tests counts: busbw = algbw * factor.
double bus_factor(Kind kind, int ranks);

}  // namespace tamaki::tools
