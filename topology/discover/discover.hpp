#pragma once
// This machine as a value: hwloc for processors and PCI, sysfs for network interfaces and verbs devices,
// the CUDA driver and NVML where they are there. Nothing of the three is linked but hwloc; what is not
// found is left out.

#include <string>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

/// One host, named as this one; Crossbar of its fastest NIC's rate. Notes say what was assumed and what was
/// not found. Takes some 10 ms (more where a CUDA driver must wake up). Errors: hwloc cannot read this
/// machine.
Result<Machine> this_machine();

/// NUMA domain (index in this_machine()'s host) of the cores that this process may run on; -1 where they
/// are of several. Same host or not is RankIdentity::host; this tells ranks of one host apart.
std::int32_t numa_of_this_process();

// ---- parts, for tests
// --------------------------------------------------------------------------------------

/// Reads rates, NUMA domains and PCI addresses of NICs under `root` (usually "/sys"): class/net,
/// class/infiniband. NICs that `kind` has are completed by name; those it lacks (virtual ones) are added,
/// but for loopback and those that are down. Of a verbs device and its network interface only the verbs
/// device stays.
void read_sysfs_nics(const std::string& root, HostKind* kind);

/// "400 Gb/sec (4X NDR)" -> 50e9; 0 where it is none.
double parse_verbs_rate(const std::string& text);

/// Models, memory, compute capability and NVLinks of GPUs, by the CUDA driver and NVML. Adds a note where a
/// library is missing although there is an NVIDIA GPU.
void read_cuda(Machine* machine);

}  // namespace tamaki
