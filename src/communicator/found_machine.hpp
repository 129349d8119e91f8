#pragma once
// The machine of a job that nobody has described: its hosts behind one switch, as far as the ranks know
// them themselves.

#include <span>

#include "topology/placement/placement.hpp"
#include "transports/transport.hpp"

namespace tamaki {

struct FoundMachine {
  Machine machine;
  Placement placement;  // of the job's ranks
};

/// Hosts in order of their first rank, each with as many slots as it has ranks, the NICs and the least rate
/// that its ranks named, and the NUMA domains that they are in. Equal on all ranks, as it is made of what
/// all know of each other. The constants of time are those of shm and tcp: fits to perf_tests on two cores
/// of an AMD EPYC machine, longer where ranks share cores (docs/selection.md).
FoundMachine found_machine(std::span<const RankIdentity> ranks);

}  // namespace tamaki
