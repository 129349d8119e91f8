#pragma once
// Rings through all points of a torus or mesh that share no link: as many as pairs of links leave a point
// of a torus. A ring each way on each of them keeps every link busy, with neighbours in a ring one hop
// apart.
//
// A torus of two dimensions has two (Kotzig, Every Cartesian product of two circuits is decomposable into
// two Hamiltonian circuits, 1973), one of D dimensions D (Foregger, Discrete Mathematics 24 (1978), for
// three; Aubert and Schneider, Discrete Mathematics 38 (1982)). Used in HammingMesh (Hoefler et al., SC
// 2022) and by Bae and Bose, Edge disjoint Hamiltonian cycles in k-ary n-cubes and hypercubes, IEEE Trans.
// Computers 52 (2003). The constructions here are our own, see hamiltonian.cpp.

#include <memory>
#include <string>
#include <vector>

#include "algorithms/shapes/torus.hpp"

namespace tamaki {

struct HamiltonianRings {
  /// Positions of the grid in the order of each ring; the last is a neighbour of the first.
  std::vector<std::vector<int>> rings;
  /// [ring][position]: where in the ring a position is.
  std::vector<std::vector<int>> index;
};

/// Empty where the grid has a ring through all its points, else why not.
std::string refuse_without_hamiltonian_rings(const Topology& topology, const Problem& problem);

/// Rings of a grid that is not refused: one for each dimension that wraps with 3 or more points, and one
/// for each two others of which one is even (two sides of 2, say). Dimensions left over add points, but no
/// ring. One for 1 or 2 points. O(points) in two dimensions, O(points * shortest side) in more. The last
/// grid's are kept.
std::shared_ptr<const HamiltonianRings> hamiltonian_rings(const Grid& grid);

}  // namespace tamaki
