#include "topology/parse/hwloc.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/xml.hpp"
#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

constexpr double kAssumedPcie = 15.75e9;  // generation 3 x 16

/// A hwloc object as a device that is kept.
struct Device {
  hwloc_obj_t object = nullptr;
  Part part;
};

using PciFacts = hwloc_obj_attr_u::hwloc_pcidev_attr_s;

class HostReader {
 public:
  explicit HostReader(hwloc_topology_t topology) : topology_(topology) {}

  Machine read() {
    kind_.sockets.clear();
    kind_.numa.clear();
    read_processors();
    read_devices();
    read_bridges();
    const bool assumed_numa = join_numa_domains(&kind_);
    pair_nics_with_gpus(&kind_);
    std::int32_t cores = 0;
    for (const NumaDomain& numa : kind_.numa) cores += numa.cores;
    kind_.slots = kind_.gpus.empty() ? std::max(cores, 1) : static_cast<std::int32_t>(kind_.gpus.size());
    Machine m;
    const char* name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology_), "HostName");
    m.name = name == nullptr ? "host" : name;
    if (assumed_numa)
      m.notes.list.push_back(
          {"host.links", Note::Kind::assumption,
           "hwloc knows no rates between NUMA domains: 100 GB/s inside a socket, 40 GB/s between sockets"});
    if (assumed_pcie_)
      m.notes.list.push_back({"host.links", Note::Kind::assumption,
                              "PCIe links whose speed hwloc does not know: generation 3 x 16"});
    m.kinds = {std::move(kind_)};
    return m;
  }

 private:
  hwloc_obj_t next(hwloc_obj_type_t type, hwloc_obj_t before) const {
    return hwloc_get_next_obj_by_type(topology_, type, before);
  }

  void read_processors() {
    std::vector<hwloc_obj_t> packages;
    for (hwloc_obj_t p = nullptr; (p = next(HWLOC_OBJ_PACKAGE, p)) != nullptr;) {
      const char* model = hwloc_obj_get_info_by_name(p, "CPUModel");
      kind_.sockets.push_back({model == nullptr ? "" : model});
      packages.push_back(p);
    }
    if (packages.empty()) kind_.sockets.push_back({});
    std::vector<hwloc_obj_t> seen;
    for (hwloc_obj_t n = nullptr; (n = next(HWLOC_OBJ_NUMANODE, n)) != nullptr &&
                                  seen.size() < static_cast<std::size_t>(kMostParts);) {
      NumaDomain numa;
      numa.memory_bytes = static_cast<double>(n->attr->numanode.local_memory);
      // A second memory of the same cores (HBM beside DDR) is a domain without cores.
      const bool twin = std::any_of(seen.begin(), seen.end(), [&](hwloc_obj_t s) {
        return hwloc_bitmap_isequal(s->cpuset, n->cpuset) != 0;
      });
      numa.cores = twin ? 0 : cores_in(n->cpuset);
      for (std::size_t p = 0; p < packages.size(); ++p)
        if (hwloc_bitmap_iszero(n->cpuset) == 0 &&
            hwloc_bitmap_isincluded(n->cpuset, packages[p]->cpuset) != 0)
          numa.socket = static_cast<std::int32_t>(p);
      kind_.numa.push_back(numa);
      seen.push_back(n);
    }
    if (kind_.numa.empty()) kind_.numa.push_back({0, cores_in(hwloc_get_root_obj(topology_)->cpuset)});
  }

  std::int32_t cores_in(hwloc_const_cpuset_t set) const {
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology_, set, HWLOC_OBJ_CORE);
    return cores > 0 ? cores
                     : std::max(0, hwloc_get_nbobjs_inside_cpuset_by_type(topology_, set, HWLOC_OBJ_PU));
  }

  std::int32_t numa_of(hwloc_obj_t device) const {
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology_, device);
    std::int32_t index = 0;
    for (hwloc_obj_t n = nullptr; (n = next(HWLOC_OBJ_NUMANODE, n)) != nullptr; ++index)
      if (near != nullptr && near->nodeset != nullptr &&
          hwloc_bitmap_isset(near->nodeset, n->os_index) != 0)
        return std::min(index, static_cast<std::int32_t>(kind_.numa.size()) - 1);
    return 0;
  }

  static std::string bus_id(const PciFacts& pci) {
    return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), pci.bus, pci.dev,
                       pci.func);
  }

  static bool is_gpu(const PciFacts& pci) {
    constexpr int kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;
    const bool accelerator = pci.class_id == 0x0302 || pci.class_id == 0x0380 || pci.class_id == 0x1200;
    if (pci.vendor_id == kNvidia || pci.vendor_id == kAmd) return accelerator || pci.class_id == 0x0300;
    return pci.vendor_id == kIntel && (pci.class_id == 0x0302 || pci.class_id == 0x0380);
  }
  static bool is_nic(const PciFacts& pci) { return pci.class_id >> 8 == 0x02 || pci.class_id == 0x0c06; }

  /// Names of the OS devices of a NIC: verbs devices first, they are what a transport opens.
  static std::vector<std::string> nic_names(hwloc_obj_t device) {
    std::vector<std::string> verbs, network;
    for (hwloc_obj_t io = device->io_first_child; io != nullptr; io = io->next_sibling) {
      if (io->type != HWLOC_OBJ_OS_DEVICE || io->name == nullptr) continue;
      if (io->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) verbs.emplace_back(io->name);
      if (io->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) network.emplace_back(io->name);
    }
    return verbs.empty() ? network : verbs;
  }

  void read_devices() {
    for (hwloc_obj_t d = nullptr; (d = hwloc_get_next_pcidev(topology_, d)) != nullptr;) {
      const PciFacts& pci = d->attr->pcidev;
      if (is_gpu(pci) && kind_.gpus.size() < static_cast<std::size_t>(kMostParts)) {
        const char* model = d->name != nullptr ? d->name : hwloc_obj_get_info_by_name(d, "PCIDevice");
        devices_.push_back({d, {Part::Kind::gpu, static_cast<std::int32_t>(kind_.gpus.size())}});
        kind_.gpus.push_back(
            {.model = model == nullptr ? "" : model, .numa = numa_of(d), .pci = bus_id(pci)});
      } else if (is_nic(pci)) {
        for (const std::string& name : nic_names(d)) {
          if (kind_.nics.size() >= static_cast<std::size_t>(kMostParts)) break;
          devices_.push_back({d, {Part::Kind::nic, static_cast<std::int32_t>(kind_.nics.size())}});
          kind_.nics.push_back({.name = name, .numa = numa_of(d), .pci = bus_id(pci)});
        }
      }
    }
  }

  static bool is_pcie_bridge(hwloc_obj_t o) {
    return o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
  }
  double rate(float gigabytes) {
    if (gigabytes > 0) return static_cast<double>(gigabytes) * 1e9;
    assumed_pcie_ = true;
    return kAssumedPcie;
  }

  /// A bridge below which ways to kept devices part is a hub; all others are wire.
  void read_bridges() {
    std::map<hwloc_obj_t, std::vector<hwloc_obj_t>> below;  // bridge -> its children on the way to devices
    for (const Device& device : devices_)
      for (hwloc_obj_t child = device.object, up = child->parent; up != nullptr;
           child = up, up = up->parent) {
        auto& children = below[up];
        if (std::find(children.begin(), children.end(), child) == children.end()) children.push_back(child);
      }
    std::map<hwloc_obj_t, std::int32_t> hubs;
    const auto parent_of = [&](hwloc_obj_t object) {
      for (hwloc_obj_t up = object->parent; up != nullptr; up = up->parent)
        if (const auto hub = hubs.find(up); hub != hubs.end()) return Part{Part::Kind::hub, hub->second};
      return Part{Part::Kind::numa, numa_of(object)};
    };
    for (hwloc_obj_t bridge = nullptr; (bridge = hwloc_get_next_bridge(topology_, bridge)) != nullptr;) {
      const auto children = below.find(bridge);
      if (!is_pcie_bridge(bridge) || children == below.end() || children->second.size() < 2) continue;
      hubs[bridge] = static_cast<std::int32_t>(kind_.hubs.size());
      kind_.hubs.push_back({Hub::Kind::pcie, bus_id(bridge->attr->bridge.upstream.pci)});
    }
    for (const auto& [bridge, hub] : sorted(hubs))
      kind_.links.push_back(
          {{Part::Kind::hub, hub}, parent_of(bridge), rate(top_of(bridge)), 0, PartLink::Kind::pcie});
    for (const Device& device : devices_)
      kind_.links.push_back({device.part, parent_of(device.object),
                             rate(device.object->attr->pcidev.linkspeed), 0, PartLink::Kind::pcie});
  }

  static std::vector<std::pair<hwloc_obj_t, std::int32_t>> sorted(
      const std::map<hwloc_obj_t, std::int32_t>& hubs) {
    std::vector<std::pair<hwloc_obj_t, std::int32_t>> list(hubs.begin(), hubs.end());
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return list;
  }
  static float top_of(hwloc_obj_t bridge) { return bridge->attr->bridge.upstream.pci.linkspeed; }

  hwloc_topology_t topology_;
  HostKind kind_;
  std::vector<Device> devices_;
  bool assumed_pcie_ = false;
};

}  // namespace

Machine machine_from_hwloc(hwloc_topology* topology) { return HostReader(topology).read(); }

Result<Machine> machine_from_hwloc_xml(std::string_view text, std::string_view file) {
  // hwloc says only that it refuses; what is not XML at all gets its line from our own reader.
  const Result<XmlElement> root = parse_xml(text, file);
  if (!root) return tl::unexpected<Error>(root.error());
  if (root->name != "topology")
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: <{}> is neither hwloc's <topology> nor NCCL's <system>", file,
                            root->line, root->name));
  const bool holds_anything = std::any_of(root->children.begin(), root->children.end(),
                                          [](const XmlElement& e) { return e.name == "object"; });
  if (!holds_anything)
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: <topology> without an <object>", file, root->line));
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    return fail(Code::out_of_memory, fmt::format("{}: hwloc cannot start", file));
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(topology,
                                                                                 &hwloc_topology_destroy);
  const std::string copy(text);  // hwloc wants the terminating zero counted
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_set_xmlbuffer(topology, copy.c_str(), static_cast<int>(copy.size()) + 1) != 0 ||
      hwloc_topology_load(topology) != 0)
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: hwloc refuses this topology", file, root->line));
  Machine machine = machine_from_hwloc(topology);
  if (Status good = check(machine); !good)
    return fail(Code::invalid_argument, fmt::format("{}:{}: {}", file, root->line, good.error().message));
  return machine;
}

}  // namespace tamaki
