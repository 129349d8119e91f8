#include "topology/discover/discover.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "topology/parse/hwloc.hpp"

namespace tamaki {
namespace {

using OwnedTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

enum class Devices { left_out, kept };

/// Loaded, or null.
OwnedTopology load(Devices devices) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, &hwloc_topology_destroy};
  OwnedTopology owner(topology, &hwloc_topology_destroy);
  // Linux's own component reads PCI from sysfs. The others are plug-ins that load drivers into this process
  // (CUDA, OpenCL, an X display), or leak (pciaccess). A component that is not there is not an error.
  for (const char* other : {"pci", "cuda", "nvml", "rsmi", "opencl", "levelzero", "gl"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, other);
  if (devices == Devices::kept)
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(topology) != 0) owner.reset();
  return owner;
}

}  // namespace

Result<Machine> this_machine() {
  const OwnedTopology topology = load(Devices::kept);
  if (topology == nullptr) return fail_errno("hwloc cannot read this machine");
  char* text = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(topology.get(), &text, &length, 0) != 0)
    return fail_errno("hwloc cannot describe this machine");
  Result<Machine> read = machine_from_hwloc_xml(std::string_view(text), "hwloc's XML of this machine");
  hwloc_free_xmlbuffer(topology.get(), text);
  if (!read) return read;
  Machine m = std::move(*read);
  HostKind& kind = m.kinds[0];
  read_sysfs_nics("/sys", &kind);
  read_cuda(&m);
  pair_nics_with_gpus(&kind);
  if (!kind.gpus.empty()) kind.slots = static_cast<std::int32_t>(kind.gpus.size());
  Crossbar fabric;
  double fastest = 0;
  for (const Nic& nic : kind.nics) fastest = std::max(fastest, nic.bandwidth);
  if (fastest > 0) {
    fabric.link_bandwidth = fastest;
  } else {
    m.notes.list.push_back(
        {"fabric.link_bandwidth", Note::Kind::assumption, "no network interface says its speed: 10 Gb/s"});
  }
  m.fabric = fabric;
  if (Status good = check(m); !good)
    return fail(Code::internal, fmt::format("this machine as it was found: {}", good.error().message));
  return m;
}

std::int32_t numa_of_this_process() {
  const OwnedTopology topology = load(Devices::left_out);
  if (topology == nullptr) return -1;
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> own(hwloc_bitmap_alloc(),
                                                                          &hwloc_bitmap_free);
  if (own == nullptr || hwloc_get_cpubind(topology.get(), own.get(), HWLOC_CPUBIND_PROCESS) != 0) return -1;
  std::int32_t found = -1, index = 0;
  for (hwloc_obj_t n = nullptr;
       (n = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, n)) != nullptr; ++index) {
    if (hwloc_bitmap_intersects(n->cpuset, own.get()) == 0) continue;
    if (found < 0 && hwloc_bitmap_isincluded(own.get(), n->cpuset) == 0) return -1;
    if (found < 0) found = index;  // a later memory of the same cores is no other place
  }
  return found;
}

}  // namespace tamaki
