#pragma once
// What structure the ranks of a communicator have on a machine: from machine and placement to what
// algorithms may know.

#include <string>

#include "topology/placement/placement.hpp"
#include "topology/topology.hpp"

namespace tamaki {

struct Recognized {
  Topology topology;
  /// For people, one line: "4x4x2 torus, permuted", "8 hosts of 8 ranks on 8 rails", "16 ranks of rail 3",
  /// "8 ranks of one host in 2 NUMA domains", "no structure: hosts have 1 to 3 ranks".
  std::string what;
};

/// Host and, where they are known, NUMA domain and rail of each rank. A grid where the machine is a torus,
/// each rank has a host of its own, and the hosts are all points of a box: in each of the dimensions that a
/// job sees (else of the physical axes) any subset of coordinates, combined with all those of the others.
/// Such ranks have neighbours to which the way along the dimension is shared with no other pair. A
/// dimension wraps where the machine's does and the way from the last coordinate to the first is no longer
/// than the longest other step. Dimensions are put in the order, and in the direction, in which ranks go
/// by; rank_at is empty where that makes rank and position the same. Indices of the placement must be
/// within the machine.
Recognized recognize(const Machine& machine, const Placement& placement);

}  // namespace tamaki
