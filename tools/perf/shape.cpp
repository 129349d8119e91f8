#include "perf/shape.hpp"

#include <algorithm>
#include <numeric>

namespace tamaki::tools {
namespace {

constexpr std::string_view kNames[kKinds] = {
    "allreduce", "reduce",   "broadcast",  "allgather",       "reduce_scatter", "gather",   "scatter",  "alltoall",
    "barrier",   "sendrecv", "allgatherv", "reduce_scatterv", "gatherv",        "scatterv", "alltoallv"};

bool uneven(Kind kind) { return kind >= Kind::allgatherv; }

/// Elements of each block: equal, or in proportion 1:2:3:4:1:2... with the rest in the last.
std::vector<std::size_t> block_sizes(bool equal, std::size_t total, int ranks, int shift) {
  std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks));
  const auto weight = [&](int i) { return equal ? 1u : 1u + static_cast<unsigned>((i + shift) % 4); };
  std::size_t sum = 0, given = 0;
  for (int i = 0; i < ranks; ++i) sum += weight(i);
  for (int i = 0; i < ranks; ++i) given += sizes[static_cast<std::size_t>(i)] = total / sum * weight(i);
  if (!equal) sizes.back() += total - given;
  return sizes;
}

}  // namespace

std::string_view name_of(Kind kind) { return kNames[static_cast<int>(kind)]; }
std::string kind_names() {
  std::string names;
  for (const auto name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}
bool parse_kind(std::string_view name, Kind* kind) {
  for (int i = 0; i < kKinds; ++i)
    if (kNames[i] == name) {
      *kind = static_cast<Kind>(i);
      return true;
    }
  return false;
}
bool reduces(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter || kind == Kind::reduce_scatterv;
}
bool has_root(Kind kind) {
  return kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather || kind == Kind::scatter ||
         kind == Kind::gatherv || kind == Kind::scatterv;
}
Collective collective_of(Kind kind) {
  switch (kind) {
    case Kind::allgatherv: return Collective::allgather;
    case Kind::reduce_scatterv: return Collective::reduce_scatter;
    case Kind::gatherv: return Collective::gather;
    case Kind::scatterv: return Collective::scatter;
    case Kind::alltoallv: return Collective::alltoall;
    default: return static_cast<Collective>(kind);  // the first ten are in the same order
  }
}
static_assert(static_cast<int>(Kind::sendrecv) == static_cast<int>(Collective::send_recv));

Shape make_shape(Kind kind, DataType type, ReduceOp op, int root, int rank, int ranks, std::size_t bytes) {
  Shape s{.kind = kind, .type = type, .op = op, .root = root, .rank = rank, .ranks = ranks};
  const auto p = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(rank);
  const bool at_root = rank == root;
  const std::size_t elements = std::max<std::size_t>(1, bytes / size_of(type));
  if (kind == Kind::barrier) return s;
  using What = Segment::What;
  if (kind <= Kind::broadcast || kind == Kind::sendrecv) {
    s.count = elements;
    s.bytes = elements * size_of(type);
    s.send_elements = s.recv_elements = elements;
    s.in_place = kind != Kind::sendrecv;
    const What in = reduces(kind) ? What::contributed : What::moved;
    if (kind != Kind::broadcast || at_root) s.send_data = {{in, 0, elements, rank, 0, 0}};
    if (kind == Kind::sendrecv)
      s.recv_data = {{What::moved, 0, elements, (rank + ranks - 1) % ranks, 0, 0}};
    else if (kind == Kind::broadcast)
      s.recv_data = {{What::moved, 0, elements, root, 0, 0}};
    else if (kind == Kind::allreduce || at_root)
      s.recv_data = {{What::result, 0, elements, 0, 0, 0}};
    return s;
  }
  // Blocks. sizes[i]: of rank i (alltoall: from this rank to i and back).
  const bool all = kind == Kind::alltoall || kind == Kind::alltoallv;
  const std::size_t total = std::max(p, elements / p * p);
  const std::vector<std::size_t> sizes = block_sizes(!uneven(kind), uneven(kind) ? std::max(p, elements) : total, ranks,
                                                     0);
  std::vector<std::size_t> sent = sizes, received = sizes;
  // alltoallv: block (i, j) depends on i + j, so that counts are symmetric; 2.5 units in the mean.
  const std::size_t unit = std::max<std::size_t>(1, elements * 2 / (p * 5));
  if (kind == Kind::alltoallv)
    for (std::size_t i = 0; i < p; ++i) sent[i] = received[i] = unit * ((r + i) % 4 + 1) - ((r + i) % 4 == 0);
  const std::size_t sum = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
  std::size_t before = 0;  // elements of the ranks below this one
  for (std::size_t i = 0; i < r; ++i) before += sizes[i];
  const std::size_t own = sizes[r];
  s.count = sum / p;
  s.bytes = sum * size_of(type);
  if (kind == Kind::alltoallv) s.bytes = unit * p * 5 / 2 * size_of(type);
  s.send_counts = sent;
  s.recv_counts = received;
  const bool collects = kind == Kind::allgather || kind == Kind::allgatherv || kind == Kind::gather || kind == Kind::gatherv;
  const bool here = !has_root(kind) || at_root;
  std::size_t at = 0;
  if (all) {
    s.send_elements = s.recv_elements = sum;
    s.in_place = kind == Kind::alltoall;
    for (std::size_t i = 0; i < p; at += sent[i++]) {
      s.send_data.push_back({What::moved, at, sent[i], rank, static_cast<int>(i), 0});
      s.recv_data.push_back({What::moved, at, sent[i], static_cast<int>(i), rank, 0});
    }
  } else if (collects) {
    s.send_elements = own;
    s.recv_elements = here ? sum : 0;
    s.send_in_recv = before;
    s.in_place = kind == Kind::allgather || kind == Kind::gather;
    s.send_data = {{What::moved, 0, own, rank, 0, 0}};
    for (std::size_t i = 0; here && i < p; at += sizes[i++])
      s.recv_data.push_back({What::moved, at, sizes[i], static_cast<int>(i), 0, 0});
  } else if (reduces(kind)) {
    s.send_elements = sum;
    s.recv_elements = own;
    s.recv_larger = false;
    s.recv_in_send = before;
    s.in_place = true;
    s.send_data = {{What::contributed, 0, sum, rank, 0, 0}};
    s.recv_data = {{What::result, 0, own, 0, 0, before}};
  } else {  // scatter(v)
    s.send_elements = here ? sum : 0;
    s.recv_elements = own;
    s.recv_larger = false;
    s.recv_in_send = before;
    s.in_place = kind == Kind::scatter;
    for (std::size_t i = 0; here && i < p; at += sizes[i++])
      s.send_data.push_back({What::moved, at, sizes[i], root, static_cast<int>(i), 0});
    s.recv_data = {{What::moved, 0, own, root, rank, 0}};
  }
  return s;
}

tmkResult_t call(const Shape& s, const void* send, void* recv, tmkComm_t comm) {
  const auto type = static_cast<tmkDataType_t>(s.type);
  const auto op = static_cast<tmkOp_t>(s.op);
  const std::size_t own = s.send_counts.empty() ? 0 : s.send_counts[static_cast<std::size_t>(s.rank)];
  switch (s.kind) {
    case Kind::allreduce: return tmkAllreduce(send, recv, s.count, type, op, comm);
    case Kind::reduce: return tmkReduce(send, recv, s.count, type, op, s.root, comm);
    case Kind::broadcast: return tmkBroadcast(send, recv, s.count, type, s.root, comm);
    case Kind::allgather: return tmkAllgather(send, recv, own, type, comm);
    case Kind::reduce_scatter: return tmkReduceScatter(send, recv, own, type, op, comm);
    case Kind::gather: return tmkGather(send, recv, own, type, s.root, comm);
    case Kind::scatter: return tmkScatter(send, recv, own, type, s.root, comm);
    case Kind::alltoall: return tmkAlltoall(send, recv, own, type, comm);
    case Kind::barrier: return tmkBarrier(comm);
    case Kind::sendrecv:
      return tmkSendrecv(send, s.count, (s.rank + 1) % s.ranks, recv, s.count, (s.rank + s.ranks - 1) % s.ranks, type, comm);
    case Kind::allgatherv: return tmkAllgatherv(send, recv, s.recv_counts.data(), nullptr, type, comm);
    case Kind::reduce_scatterv: return tmkReduceScatterv(send, recv, s.recv_counts.data(), type, op, comm);
    case Kind::gatherv: return tmkGatherv(send, own, recv, s.recv_counts.data(), nullptr, type, s.root, comm);
    case Kind::scatterv: return tmkScatterv(send, s.send_counts.data(), nullptr, recv, own, type, s.root, comm);
    case Kind::alltoallv:
      return tmkAlltoallv(send, s.send_counts.data(), nullptr, recv, s.recv_counts.data(), nullptr, type, comm);
  }
  return tmkInternalError;
}

double bus_factor(Kind kind, int ranks) {
  const double p = ranks;
  switch (kind) {
    case Kind::allreduce: return 2 * (p - 1) / p;
    case Kind::reduce: case Kind::broadcast: case Kind::sendrecv: return 1;
    default: return (p - 1) / p;
  }
}

}  // namespace tamaki::tools
