#pragma once
// A topology of four ranks on which an algorithm can be shown.

#include "algorithms/algorithm.hpp"

namespace tamaki::test {

/// The first of these that the algorithm serves: all ranks on one host; a torus of 2x2; a ring; two hosts
/// on two rails.
inline Topology serving_topology(const Algorithm& algorithm) {
  const Problem problem{.collective = algorithm.collective, .ranks = 4};
  for (const Topology& topology :
       {Topology::flat(4), Topology::torus({{2, true}, {2, true}}, 2), Topology::torus({{4, true}}, 2)})
    if (algorithm.refuses(topology, problem).empty()) return topology;
  return Topology::rails(2, 2);
}

}  // namespace tamaki::test
