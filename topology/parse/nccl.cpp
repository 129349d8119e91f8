// NCCL topology XML in.
#include "topology/parse/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>

#include "base/xml.hpp"
#include "topology/parse/hwloc.hpp"
#include "topology/parse/nccl_rates.hpp"

namespace tamaki {
namespace {

class NcclReader {
 public:
  explicit NcclReader(std::string_view file) : file_(file) {}

  Result<Machine> read(const XmlElement& root) {
    kind_.sockets.clear();
    kind_.numa.clear();
    if (root.name != "system") wrong(root, "is not NCCL's <system>");
    for (const XmlElement& cpu : root.children)
      if (cpu.name == "cpu" && !failed()) read_cpu(cpu);
    if (!failed() && kind_.numa.empty()) wrong(root, "has no <cpu>");
    if (!failed()) number_devices(root);
    if (!failed()) read_nvlinks();
    if (failed()) return tl::unexpected<Error>(error_);
    pair_nics_with_gpus(&kind_);
    Machine m;
    m.name = "nccl";
    kind_.slots = std::max<std::int32_t>(1, static_cast<std::int32_t>(kind_.gpus.size()));
    const bool assumed = join_numa_domains(&kind_);
    if (assumed)
      m.notes.list.push_back(
          {"host.links", Note::Kind::assumption, "the file holds no rates between processors: 40 GB/s"});
    m.kinds = {std::move(kind_)};
    if (Status good = check(m); !good)
      return fail(Code::invalid_argument, fmt::format("{}:{}: {}", file_, root.line, good.error().message));
    return m;
  }

 private:
  struct Device {
    const XmlElement* element = nullptr;  // <gpu> or <net>
    Part parent;
    double bandwidth = 0;  // of the PCIe link
    std::int32_t dev = 0, numa = 0;
    std::string pci;
  };

  bool failed() const { return !error_.message.empty(); }
  void wrong(const XmlElement& at, const std::string& text) {
    if (!failed())
      error_ = {Code::invalid_argument, Scope::request,
                fmt::format("{}:{}: <{}> {}", file_, at.line, at.name, text)};
  }

  std::int64_t number(const XmlElement& at, const char* name, std::int64_t otherwise, std::int64_t low,
                      std::int64_t high) {
    const std::string* text = at.attribute(name);
    if (text == nullptr) return otherwise;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < low || value > high)
      wrong(at, fmt::format("attribute {}=\"{}\" is not a number in {}..{}", name, *text, low, high));
    return value;
  }
  std::int64_t required(const XmlElement& at, const char* name, std::int64_t low, std::int64_t high) {
    if (at.attribute(name) == nullptr) wrong(at, fmt::format("has no attribute {}", name));
    return number(at, name, low, low, high);
  }
  std::string text(const XmlElement& at, const char* name) {
    const std::string* value = at.attribute(name);
    if (value == nullptr) wrong(at, fmt::format("has no attribute {}", name));
    return value == nullptr ? "" : *value;
  }

  /// Set bits of "ffffffff,00000000": hardware threads.
  std::int32_t count_bits(const XmlElement& cpu) {
    const std::string* mask = cpu.attribute("affinity");
    std::int32_t bits = 0;
    if (mask == nullptr) return 0;
    for (const char c : *mask) {
      if (c == ',') continue;
      const std::size_t digit = std::string_view("0123456789abcdef")
                                    .find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
      if (digit == std::string_view::npos) {
        wrong(cpu, fmt::format("attribute affinity=\"{}\" is no mask", *mask));
        return 0;
      }
      bits += __builtin_popcount(static_cast<unsigned>(digit));
    }
    return bits;
  }

  void read_cpu(const XmlElement& cpu) {
    if (kind_.numa.size() >= static_cast<std::size_t>(kMostParts))
      return wrong(cpu, fmt::format("is one of more than {}", kMostParts));
    const std::int64_t id =
        number(cpu, "numaid", static_cast<std::int64_t>(kind_.numa.size()), -1, kMostParts);
    if (!numa_ids_.emplace(id, kind_.numa.size()).second)
      wrong(cpu, fmt::format("numaid {} is there twice", id));
    const auto numa = static_cast<std::int32_t>(kind_.numa.size());
    std::string model;
    for (const char* name : {"arch", "vendor", "familyid", "modelid"})
      if (const std::string* part = cpu.attribute(name)) model += (model.empty() ? "" : " ") + *part;
    kind_.sockets.push_back({model});
    kind_.numa.push_back({numa, count_bits(cpu)});
    for (const XmlElement& child : cpu.children) read_device(child, {Part::Kind::numa, numa}, numa);
  }

  double pcie_rate(const XmlElement& pci) {
    const std::string* speed = pci.attribute("link_speed");
    const std::int64_t width = number(pci, "link_width", 16, 0, 64);
    const double lane = lane_rate(speed == nullptr || speed->empty() ? "8 GT/s" : *speed);
    if (lane <= 0)
      wrong(pci, fmt::format("attribute link_speed=\"{}\" is no PCIe rate, as \"16.0 GT/s PCIe\"", *speed));
    return lane * static_cast<double>(width == 0 ? 16 : width);
  }

  void read_device(const XmlElement& at, Part parent, std::int32_t numa) {
    if (failed()) return;
    if (at.name == "nic") return read_nets(at, parent, numa, 0, "");
    if (at.name != "pci") return;
    const std::string id = text(at, "busid");
    if (!bus_ids_.emplace(id, &at).second)
      return wrong(at, fmt::format("busid {} is there twice; first in line {}", id, bus_ids_[id]->line));
    const double rate = pcie_rate(at);
    bool is_switch = false, found = false;
    for (const XmlElement& child : at.children) {
      is_switch = is_switch || child.name == "pci";
      if (child.name == "gpu") {
        gpus_.push_back({&child, parent, rate,
                         static_cast<std::int32_t>(required(child, "dev", 0, kMostParts)), numa, id});
        found = true;
      }
      if (child.name == "nic") {
        read_nets(child, parent, numa, rate, id);
        found = true;
      }
    }
    if (!is_switch || found) return;
    if (kind_.hubs.size() >= static_cast<std::size_t>(kMostParts))
      return wrong(at, fmt::format("is one of more than {} switches", kMostParts));
    const Part hub = {Part::Kind::hub, static_cast<std::int32_t>(kind_.hubs.size())};
    kind_.hubs.push_back({Hub::Kind::pcie, id});
    kind_.links.push_back({hub, parent, rate, 0, PartLink::Kind::pcie});
    for (const XmlElement& child : at.children) read_device(child, hub, numa);
  }

  void read_nets(const XmlElement& nic, Part parent, std::int32_t numa, double rate,
                 const std::string& id) {
    for (const XmlElement& net : nic.children)
      if (net.name == "net" && net.attribute("dev") != nullptr)  // NCCL ignores those without
        nets_.push_back(
            {&net, parent, rate, static_cast<std::int32_t>(required(net, "dev", 0, kMostParts)), numa, id});
  }

  /// Devices in the order of their "dev"; each number once.
  void sort_devices(std::vector<Device>* devices) {
    std::stable_sort(devices->begin(), devices->end(),
                     [](const Device& a, const Device& b) { return a.dev < b.dev; });
    for (std::size_t i = 1; i < devices->size(); ++i)
      if ((*devices)[i].dev == (*devices)[i - 1].dev)
        return wrong(*(*devices)[i].element, fmt::format("dev {} is there twice", (*devices)[i].dev));
  }

  void number_devices(const XmlElement& root) {
    sort_devices(&gpus_);
    sort_devices(&nets_);
    if (gpus_.size() > static_cast<std::size_t>(kMostParts) ||
        nets_.size() > static_cast<std::size_t>(kMostParts))
      return wrong(root, fmt::format("holds more than {} devices of a kind", kMostParts));
    for (const Device& d : gpus_) {
      const auto index = static_cast<std::int32_t>(kind_.gpus.size());
      kind_.gpus.push_back(
          {.numa = d.numa,
           .pci = d.pci,
           .compute_capability = static_cast<std::int32_t>(number(*d.element, "sm", 0, 0, 10'000))});
      kind_.links.push_back({{Part::Kind::gpu, index}, d.parent, d.bandwidth, 0, PartLink::Kind::pcie});
      gpu_at_[d.pci] = index;
    }
    for (const Device& d : nets_) {
      const auto index = static_cast<std::int32_t>(kind_.nics.size());
      const std::int64_t speed = number(*d.element, "speed", 0, -1, 100'000'000);  // Mb/s
      const std::string* name = d.element->attribute("name");
      kind_.nics.push_back({.name = name == nullptr ? "" : *name,
                            .numa = d.numa,
                            .pci = d.pci,
                            .bandwidth = speed <= 0 ? 0 : static_cast<double>(speed) * 125e3,
                            .latency_s = latency(*d.element)});
      if (d.bandwidth > 0)
        kind_.links.push_back({{Part::Kind::nic, index}, d.parent, d.bandwidth, 0, PartLink::Kind::pcie});
    }
  }

  double latency(const XmlElement& net) {
    const std::string* us = net.attribute("latency");
    double value = 0;
    if (us == nullptr) return 0;
    const auto [end, error] = std::from_chars(us->data(), us->data() + us->size(), value);
    if (error != std::errc() || end != us->data() + us->size() || !(value >= 0) || value > 1e9)
      wrong(net, fmt::format("attribute latency=\"{}\" is no time in us", *us));
    return value / 1e6;
  }

  void read_nvlinks() {
    for (std::size_t g = 0; g < gpus_.size() && !failed(); ++g) {
      std::int64_t to_switch = 0;
      std::map<std::int32_t, std::int64_t> to_gpu;
      for (const XmlElement& link : gpus_[g].element->children) {
        if (link.name != "nvlink") continue;
        const std::int64_t count = required(link, "count", 1, 1'000);
        const std::string target = text(link, "target");
        const std::string* type = link.attribute("tclass");
        if (type != nullptr && type->starts_with("0x0680")) {
          to_switch += count;
          if (switch_id_.empty() || target < switch_id_) switch_id_ = target;
        } else if (const auto peer = gpu_at_.find(target); peer != gpu_at_.end()) {
          if (peer->second == static_cast<std::int32_t>(g)) return wrong(link, "leads to its own GPU");
          to_gpu[peer->second] += count;
        } else if (type == nullptr || type->starts_with("0x0302")) {
          return wrong(link, fmt::format("target \"{}\" is no GPU of this file", target));
        }
      }
      const double rate = nvlink_rate(kind_.gpus[g].compute_capability);
      const Part self = {Part::Kind::gpu, static_cast<std::int32_t>(g)};
      for (const auto& [peer, count] : to_gpu)
        if (peer > self.index)
          kind_.links.push_back({self,
                                 {Part::Kind::gpu, peer},
                                 rate * static_cast<double>(count),
                                 0,
                                 PartLink::Kind::nvlink});
      if (to_switch == 0) continue;
      if (nvswitch_ < 0) {
        nvswitch_ = static_cast<std::int32_t>(kind_.hubs.size());
        kind_.hubs.push_back({Hub::Kind::nvswitch, {}});
      }
      kind_.links.push_back({self,
                             {Part::Kind::hub, nvswitch_},
                             rate * static_cast<double>(to_switch),
                             0,
                             PartLink::Kind::nvlink});
    }
    if (nvswitch_ >= 0) kind_.hubs[static_cast<std::size_t>(nvswitch_)].pci = switch_id_;
  }

  std::string file_;
  Error error_;
  HostKind kind_;
  std::vector<Device> gpus_, nets_;
  std::map<std::int64_t, std::size_t> numa_ids_;
  std::map<std::string, const XmlElement*> bus_ids_;
  std::map<std::string, std::int32_t> gpu_at_;
  std::string switch_id_;
  std::int32_t nvswitch_ = -1;
};

}  // namespace

Result<Machine> machine_from_nccl_xml(std::string_view text, std::string_view file) {
  const Result<XmlElement> root = parse_xml(text, file);
  if (!root) return tl::unexpected<Error>(root.error());
  return NcclReader(file).read(*root);
}

}  // namespace tamaki
