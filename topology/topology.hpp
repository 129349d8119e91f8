#pragma once
// Where the ranks of a communicator are, as a value: what an algorithm may depend on. It says nothing of bandwidths and
// links (that is topology/machine.hpp, for the simulator and for selection), only of structure: who shares a host, a NUMA
// domain, a rail, and whether the ranks are the points of a torus or mesh.
//
// Filled by topology/recognize.hpp from a machine and a placement. Everything that is not known is empty, and an
// algorithm that needs it then refuses with that reason.

#include <cstdint>
#include <vector>

namespace tamaki {

struct GridDimension {
  std::int32_t size = 1;
  bool wraps = true;  // a torus in this dimension; else a mesh (a line)
  bool operator==(const GridDimension&) const = default;
};

struct Topology {
  /// Host number of each rank, numbered from 0 in order of first appearance.
  std::vector<std::int32_t> host_of_rank;
  /// NUMA domain of each rank, numbered from 0 within its host. Empty: not known, one a host.
  std::vector<std::int32_t> numa_of_rank = {};
  /// Rail (number of the NIC among those of its host) of each rank. Empty: not known.
  std::vector<std::int32_t> rail_of_rank = {};
  /// The ranks as points of a grid, slowest dimension first; the sizes' product is the number of ranks. Neighbours in a
  /// dimension have a link (or a path of their own) between them. Empty: no grid was recognized.
  std::vector<GridDimension> grid = {};
  /// Row-major position in the grid -> rank. Empty: position and rank are the same.
  std::vector<std::int32_t> rank_at = {};
  /// Messages that a rank can send at the full rate of a link at the same time, and receive (network engines, NICs).
  std::int32_t ports = 1;
  bool operator==(const Topology&) const = default;

  int ranks() const { return static_cast<int>(host_of_rank.size()); }
  bool one_host() const {
    for (auto host : host_of_rank)
      if (host != 0) return false;
    return true;
  }
  static Topology flat(int ranks) { return {std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0)}; }
  /// One rank a host, rank = row-major position.
  static Topology torus(std::vector<GridDimension> dimensions, int ports);
  /// `hosts` hosts of `per_host` ranks each, in order; rail = position in the host.
  static Topology rails(int hosts, int per_host);
};

}  // namespace tamaki
