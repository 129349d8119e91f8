#include "topology/topology.hpp"

#include <numeric>
#include <utility>

namespace tamaki {

Topology Topology::torus(std::vector<GridDimension> dimensions, int ports) {
  std::size_t ranks = 1;
  for (const GridDimension& dimension : dimensions) ranks *= static_cast<std::size_t>(dimension.size);
  Topology made;
  made.host_of_rank.resize(ranks);
  std::iota(made.host_of_rank.begin(), made.host_of_rank.end(), 0);
  made.grid = std::move(dimensions);
  made.ports = ports;
  return made;
}

Topology Topology::rails(int hosts, int per_host) {
  Topology made;
  for (int host = 0; host < hosts; ++host)
    for (int i = 0; i < per_host; ++i) {
      made.host_of_rank.push_back(host);
      made.rail_of_rank.push_back(i);
    }
  return made;
}

}  // namespace tamaki
