#pragma once
// Topologies over which algorithms that depend on where the ranks are get proved.

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace tamaki {

struct NamedTopology {
  std::string name;  // "torus 4x3x2, 6 ports", "hosts 4+1+3"
  Topology topology;
};

/// Grids of one to four dimensions with sides 1..7 (ones, twos, primes, mixed; tori, meshes and both), with
/// one port and with as many as there are links, some with permuted ranks; hosts of equal and of different
/// sizes, with NUMA domains and without; rails. None has more than `max_ranks` ranks. Same list for the
/// same argument.
std::vector<NamedTopology> proof_places(int max_ranks);

/// Hosts of these sizes, in order; ranks of a host are neighbours. `numa`: domains of each host, dealt out
/// evenly; 0: not known.
Topology hosts_of(const std::vector<int>& sizes, int numa = 0);

/// `text` as a topology: "flat:8", "torus:4x4x2" or "mesh:4x4" or "grid:4x4mx2" (m: no wrap), with ":p6"
/// for ports (default: one a link); "hosts:4+4+2" or "hosts:4x2" (4 hosts of 2), with ":n2" for NUMA
/// domains a host; "rails:4x8". `error` is empty if it was understood, else says what is wrong and gives
/// examples.
Topology parse_place(const std::string& text, std::string* error);

}  // namespace tamaki
