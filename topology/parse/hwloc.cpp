#include "topology/parse/hwloc.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/xml.hpp"

namespace tamaki {
namespace {

constexpr std::size_t kMostWords = 4'096;   // of a set: 131,072 hardware threads
constexpr std::size_t kMostCores = 65'536;  // and hardware threads
constexpr double kAssumedPcie = 15.75e9;    // generation 3 x 16

/// A cpuset or nodeset, lowest word first. "0xf...f" stands for ones without end.
struct BitSet {
  std::vector<std::uint32_t> words = {};
  bool endless = false;

  std::uint32_t word(std::size_t i) const { return i < words.size() ? words[i] : endless ? ~0u : 0; }
  bool holds(std::int64_t bit) const {
    return bit >= 0 && (word(static_cast<std::size_t>(bit / 32)) >> (bit % 32) & 1) != 0;
  }
  bool empty() const {
    return !endless && std::all_of(words.begin(), words.end(), [](std::uint32_t w) { return w == 0; });
  }
  bool within(const BitSet& other) const {
    for (std::size_t i = 0; i < std::max(words.size(), other.words.size()); ++i)
      if ((word(i) & ~other.word(i)) != 0) return false;
    return !endless || other.endless;
  }
};

/// "0x00000001,0xffffffff", "0xf...f,0x0", "0x1,,0x0" (zero words left out).
bool parse_set(std::string_view text, BitSet* set) {
  *set = {};
  std::vector<std::uint32_t> from_high;
  for (bool first = true; first || !text.empty(); first = false) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word == "0xf...f" && first) {
      set->endless = true;
      continue;
    }
    std::uint32_t value = 0;
    if (word.starts_with("0x")) word.remove_prefix(2);
    if (!word.empty()) {
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
      if (error != std::errc() || stop != word.data() + word.size()) return false;
    }
    if (from_high.size() == kMostWords) return false;
    from_high.push_back(value);
  }
  set->words.assign(from_high.rbegin(), from_high.rend());
  return true;
}

struct PciFacts {
  std::string bus;
  unsigned type = 0, vendor = 0, device = 0;
  double rate = 0;  // B/s; 0: not known
};

/// What an I/O object hangs on.
struct Way {
  std::vector<std::size_t> bridges;  // from the host's side, in HwlocReader::bridges_
  std::int32_t numa = 0;
};

class HwlocReader {
 public:
  explicit HwlocReader(std::string_view file) : file_(file) {}

  Result<Machine> read(const XmlElement& root) {
    kind_.sockets.clear();
    kind_.numa.clear();
    const XmlElement* machine = nullptr;
    if (root.name != "topology") wrong(root, "is neither hwloc's <topology> nor NCCL's <system>");
    for (const XmlElement& child : root.children)
      if (child.name == "object" && machine == nullptr) machine = &child;
    if (machine == nullptr && !failed()) wrong(root, "holds no <object>");
    if (!failed()) collect(*machine);
    if (!failed()) read_processors(*machine);
    if (!failed()) walk_devices(*machine, {}, BitSet{{}, true});
    if (failed()) return tl::unexpected<Error>(error_);
    link_devices();
    return finish(*machine);
  }

 private:
  struct Bridge {
    PciFacts pci;
    Way way;  // above it
    std::vector<std::int64_t>
        children;  // what is next below it on the way to devices: bridges, or -1 - device
    std::int32_t hub = -1;
  };
  struct Device {
    Part part;
    PciFacts pci;
    Way way;
  };

  bool failed() const { return !error_.message.empty(); }
  void wrong(const XmlElement& at, const std::string& text) {
    if (!failed())
      error_ = {Code::invalid_argument, Scope::request,
                fmt::format("{}:{}: <{}> {}", file_, at.line, at.name, text)};
  }
  static std::string_view text(const XmlElement& at, std::string_view name) {
    const std::string* value = at.attribute(name);
    return value == nullptr ? std::string_view() : std::string_view(*value);
  }
  static std::string info(const XmlElement& at, std::string_view name) {
    for (const XmlElement& child : at.children)
      if (child.name == "info" && text(child, "name") == name) return std::string(text(child, "value"));
    return {};
  }
  double number(const XmlElement& at, const char* name) {
    const std::string_view own = text(at, name);
    double value = 0;
    if (own.empty()) return 0;
    const auto [end, error] = std::from_chars(own.data(), own.data() + own.size(), value);
    if (error != std::errc() || end != own.data() + own.size() || !std::isfinite(value) || value < 0)
      wrong(at, fmt::format("attribute {}=\"{}\" is no number from 0", name, own));
    return value;
  }
  BitSet set_of(const XmlElement& at, const char* name) {
    BitSet set;
    if (!parse_set(text(at, name), &set))
      wrong(at, fmt::format("attribute {}=\"{}\" is no set, as 0x0000ffff", name, text(at, name)));
    return set;
  }

  // ---- processors

  struct Sized {
    const XmlElement* object;
    BitSet cpus;
  };

  /// All objects by type, in the order of the file.
  void collect(const XmlElement& at) {
    const std::string_view type = text(at, "type");
    std::vector<Sized>* list = nullptr;
    if (type == "Package" || type == "Socket") list = &packages_;  // hwloc 1.10 and before say Socket
    if (type == "NUMANode" || type == "Node") list = &domains_;
    if (type == "Core") list = &cores_;
    if (type == "PU") list = &threads_;
    if (list != nullptr) {
      list->push_back({&at, set_of(at, "cpuset")});
      const std::size_t most =
          list == &cores_ || list == &threads_ ? kMostCores : static_cast<std::size_t>(kMostParts);
      if (list->size() > most) return wrong(at, fmt::format("is one of more than {}", most));
    }
    for (const XmlElement& child : at.children) {
      if (failed()) return;
      if (child.name == "object") collect(child);
    }
  }

  /// Cores, or hardware threads where no cores are listed, in each domain. Each is counted in the first
  /// that holds it.
  std::int32_t cores_in(const BitSet& cpus) const {
    std::int64_t count = 0;
    for (const Sized& one : cores_.empty() ? threads_ : cores_)
      if (!one.cpus.empty() && one.cpus.within(cpus)) ++count;
    return static_cast<std::int32_t>(std::min<std::int64_t>(count, 1 << 20));
  }

  void read_processors(const XmlElement& machine) {
    if (cores_.empty() && threads_.empty()) return wrong(machine, "holds no Core and no PU");
    for (const Sized& package : packages_) kind_.sockets.push_back({info(*package.object, "CPUModel")});
    if (packages_.empty()) kind_.sockets.push_back({info(machine, "CPUModel")});
    for (std::size_t d = 0; d < domains_.size(); ++d) {
      const Sized& domain = domains_[d];
      NumaDomain numa;
      numa.memory_bytes = number(*domain.object, "local_memory");
      // A second memory of the same cores (HBM beside DDR) is a domain without cores.
      bool twin = false;
      for (std::size_t other = 0; other < d; ++other)
        twin =
            twin || (domains_[other].cpus.within(domain.cpus) && domain.cpus.within(domains_[other].cpus));
      numa.cores = twin ? 0 : cores_in(domain.cpus);
      for (std::size_t p = 0; p < packages_.size(); ++p)
        if (!domain.cpus.empty() && domain.cpus.within(packages_[p].cpus))
          numa.socket = static_cast<std::int32_t>(p);
      kind_.numa.push_back(numa);
      numa_indices_.push_back(static_cast<std::int64_t>(number(*domain.object, "os_index")));
    }
    if (domains_.empty()) kind_.numa.push_back({0, cores_in({{}, true}), number(machine, "local_memory")});
  }

  std::int32_t first_domain_of(const BitSet& nodes) const {
    for (std::size_t d = 0; d < numa_indices_.size(); ++d)
      if (nodes.holds(numa_indices_[d])) return static_cast<std::int32_t>(d);
    return 0;
  }

  // ---- devices

  PciFacts pci_of(const XmlElement& at) {
    PciFacts pci;
    pci.bus = text(at, "pci_busid");
    pci.rate = number(at, "pci_link_speed") * 1e9;
    const std::string type(text(at, "pci_type"));  // "0302 [10de:2330] [10de:1839] a1"
    if (!type.empty() &&
        std::sscanf(type.c_str(), "%4x [%4x:%4x]", &pci.type, &pci.vendor, &pci.device) != 3)
      wrong(at, fmt::format("attribute pci_type=\"{}\" is not as 0302 [10de:2330]", type));
    return pci;
  }

  static bool is_gpu(const PciFacts& pci) {
    constexpr unsigned kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;
    const bool accelerator = pci.type == 0x0302 || pci.type == 0x0380 || pci.type == 0x1200;
    if (pci.vendor == kNvidia || pci.vendor == kAmd) return accelerator || pci.type == 0x0300;
    return pci.vendor == kIntel && (pci.type == 0x0302 || pci.type == 0x0380);
  }
  static bool is_nic(const PciFacts& pci) { return pci.type >> 8 == 0x02 || pci.type == 0x0c06; }

  /// Names of the OS devices of a NIC: verbs devices where there are any, they are what a transport opens.
  static std::vector<std::string> nic_names(const XmlElement& device) {
    constexpr std::string_view kNetwork = "2", kVerbs = "3";
    std::vector<std::string> verbs, network;
    for (const XmlElement& child : device.children) {
      if (text(child, "type") != "OSDev" || text(child, "name").empty()) continue;
      if (text(child, "osdev_type") == kVerbs) verbs.emplace_back(text(child, "name"));
      if (text(child, "osdev_type") == kNetwork) network.emplace_back(text(child, "name"));
    }
    return verbs.empty() ? network : verbs;
  }

  void add_device(const Part& part, const PciFacts& pci, const Way& way, const XmlElement& at) {
    if (part.index >= kMostParts)
      return wrong(at, fmt::format("is one of more than {} devices of a kind", kMostParts));
    std::int64_t below = -1 - static_cast<std::int64_t>(devices_.size());
    for (std::size_t b = way.bridges.size(); b-- > 0;) {
      std::vector<std::int64_t>& children = bridges_[way.bridges[b]].children;
      if (std::find(children.begin(), children.end(), below) == children.end()) children.push_back(below);
      below = static_cast<std::int64_t>(way.bridges[b]);
    }
    devices_.push_back({part, pci, way});
  }

  void read_pci_device(const XmlElement& at, const Way& way) {
    const PciFacts pci = pci_of(at);
    if (is_gpu(pci)) {
      std::string model(text(at, "name"));
      add_device({Part::Kind::gpu, static_cast<std::int32_t>(kind_.gpus.size())}, pci, way, at);
      kind_.gpus.push_back(
          {.model = model.empty() ? info(at, "PCIDevice") : model, .numa = way.numa, .pci = pci.bus});
    } else if (is_nic(pci)) {
      for (const std::string& name : nic_names(at)) {
        add_device({Part::Kind::nic, static_cast<std::int32_t>(kind_.nics.size())}, pci, way, at);
        kind_.nics.push_back({.name = name, .numa = way.numa, .pci = pci.bus});
      }
    }
  }

  /// `nodes`: the nodeset of the nearest object that is no I/O.
  void walk_devices(const XmlElement& at, Way way, BitSet nodes) {
    const std::string_view type = text(at, "type");
    if (type == "PCIDev") read_pci_device(at, way);
    if (type == "Bridge" && text(at, "bridge_type").starts_with("1-")) {
      bridges_.push_back({pci_of(at), way, {}, -1});
      way.bridges.push_back(bridges_.size() - 1);
    }
    if (at.attribute("nodeset") != nullptr) {
      nodes = set_of(at, "nodeset");
      way.numa = first_domain_of(nodes);
    }
    for (const XmlElement& child : at.children) {
      if (failed()) return;
      if (child.name == "object") walk_devices(child, way, nodes);
    }
  }

  double rate(const PciFacts& pci) {
    if (pci.rate > 0) return pci.rate;
    assumed_pcie_ = true;
    return kAssumedPcie;
  }
  Part above(const Way& way) const {
    for (std::size_t b = way.bridges.size(); b-- > 0;)
      if (const std::int32_t hub = bridges_[way.bridges[b]].hub; hub >= 0) return {Part::Kind::hub, hub};
    return {Part::Kind::numa, way.numa};
  }

  /// A bridge below which ways to kept devices part is a hub; all others are wire.
  void link_devices() {
    for (Bridge& bridge : bridges_) {
      if (bridge.children.size() < 2 || kind_.hubs.size() >= static_cast<std::size_t>(kMostParts)) continue;
      bridge.hub = static_cast<std::int32_t>(kind_.hubs.size());
      kind_.hubs.push_back({Hub::Kind::pcie, bridge.pci.bus});
    }
    for (const Bridge& bridge : bridges_)
      if (bridge.hub >= 0)
        kind_.links.push_back(
            {{Part::Kind::hub, bridge.hub}, above(bridge.way), rate(bridge.pci), 0, PartLink::Kind::pcie});
    for (const Device& device : devices_)
      kind_.links.push_back({device.part, above(device.way), rate(device.pci), 0, PartLink::Kind::pcie});
  }

  Result<Machine> finish(const XmlElement& machine) {
    const bool assumed_numa = join_numa_domains(&kind_);
    pair_nics_with_gpus(&kind_);
    std::int64_t cores = 0;
    for (const NumaDomain& numa : kind_.numa) cores += numa.cores;
    kind_.slots = kind_.gpus.empty()
                      ? static_cast<std::int32_t>(std::clamp<std::int64_t>(cores, 1, 1 << 20))
                      : static_cast<std::int32_t>(kind_.gpus.size());
    Machine m;
    const std::string name = info(machine, "HostName");
    m.name = name.empty() ? "host" : name;
    const auto assume = [&](const char* what) {
      m.notes.list.push_back({"host.links", Note::Kind::assumption, what});
    };
    if (assumed_numa)
      assume(
          "hwloc knows no rates between NUMA domains: 100 GB/s inside a socket, 40 GB/s between sockets");
    if (assumed_pcie_) assume("PCIe links whose speed hwloc does not know: generation 3 x 16");
    m.kinds = {std::move(kind_)};
    if (Status good = check(m); !good)
      return fail(Code::invalid_argument,
                  fmt::format("{}:{}: {}", file_, machine.line, good.error().message));
    return m;
  }

  std::string file_;
  Error error_;
  HostKind kind_;
  std::vector<Sized> packages_, domains_, cores_, threads_;
  std::vector<std::int64_t> numa_indices_;
  std::vector<Bridge> bridges_;
  std::vector<Device> devices_;
  bool assumed_pcie_ = false;
};

}  // namespace

Result<Machine> machine_from_hwloc_xml(std::string_view text, std::string_view file) {
  const Result<XmlElement> root = parse_xml(text, file);
  if (!root) return tl::unexpected<Error>(root.error());
  return HwlocReader(file).read(*root);
}

}  // namespace tamaki
