#pragma once
// hwloc's view of a host as a machine, from its XML (lstopo --of xml, hwloc_topology_export_xmlbuffer).

#include <string_view>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

/// One host from hwloc XML, version 1 or 2. Read here and not by hwloc, which takes the process down on
/// files that are not its own. Bandwidths that hwloc does not know are marked assumptions; a NIC's is 0
/// (not known). Slots: GPUs where there are any, else cores. Errors: "FILE:LINE: <object>: ...".
Result<Machine> machine_from_hwloc_xml(std::string_view text, std::string_view file);

/// Gives each NIC that has no GPU yet the nearest one by links (ties: the GPU with fewest NICs, then
/// order), and each NIC without a rail its index.
void pair_nics_with_gpus(HostKind* kind);

/// Links between NUMA domains: inside a socket and between sockets, at assumed rates, where there are none.
/// Returns whether any were added.
bool join_numa_domains(HostKind* kind);

}  // namespace tamaki
