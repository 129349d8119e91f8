#pragma once
// NCCL's topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): <system> of <cpu> of <pci>, <gpu>, <nvlink>,
// <nic>, <net>; NCCL src/graph/xml.cc and topo.cc.

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

/// One host. GPUs and NICs are numbered by their "dev". A PCIe link's rate is that of its generation and
/// width after encoding; an NVLink's is the line rate of the GPU's generation (25 GB/s for sm 70 to 90, 50
/// from sm 100). All NVSwitches are one hub. Elements that are not known are passed over, as NCCL does.
/// Errors: "FILE:LINE: <element>: attribute ...".
Result<Machine> machine_from_nccl_xml(std::string_view text, std::string_view file);

/// The first host of the machine. Reading it back gives the same parts and links, except what the format
/// cannot hold: memories, latencies of links, links between processors (NCCL knows these from the
/// processor's model).
std::string machine_to_nccl_xml(const Machine& machine);

}  // namespace tamaki
