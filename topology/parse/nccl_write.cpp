// NCCL topology XML out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/xml.hpp"
#include "topology/parse/nccl.hpp"
#include "topology/parse/nccl_rates.hpp"

namespace tamaki {
namespace {

struct PcieLink {
  std::string_view speed = "8";
  int width = 16;
};

/// The generation and width whose rate is nearest, newest generation first among equals.
PcieLink pcie_link(double bandwidth) {
  PcieLink best;
  double off = INFINITY;
  for (auto g = std::rbegin(kPcieGenerations); g != std::rend(kPcieGenerations); ++g)
    for (const int width : {16, 8, 4, 2, 1})
      if (const double own = std::abs(std::log(g->lane * width / bandwidth)); own < off - 1e-9) {
        off = own;
        best = {g->speed, width};
      }
  return best;
}

class NcclWriter {
 public:
  explicit NcclWriter(const HostKind& kind) : kind_(kind) {
    for (const Gpu& gpu : kind.gpus) taken_.insert(gpu.pci);
    for (const Nic& nic : kind.nics) taken_.insert(nic.pci);
    for (const Hub& hub : kind.hubs) taken_.insert(hub.pci);
    for (std::size_t i = 0; i < kind.gpus.size(); ++i) gpu_ids_.push_back(id_or(kind.gpus[i].pci));
    for (std::size_t i = 0; i < kind.hubs.size(); ++i) hub_ids_.push_back(id_or(kind.hubs[i].pci));
    written_gpu_.resize(kind.gpus.size());
    written_nic_.resize(kind.nics.size());
    written_hub_.resize(kind.hubs.size());
  }

  std::string write() {
    text_ = "<system version=\"1\">\n";
    std::vector<std::string> inside(kind_.numa.size());
    for (std::size_t n = 0; n < kind_.numa.size(); ++n)
      inside[n] = capture([&] { write_children({Part::Kind::numa, static_cast<std::int32_t>(n)}, 2); });
    // Devices whose way to a processor is not known hang on the domain they are near.
    const auto home = [&](std::int32_t numa) -> std::string& {
      return inside[static_cast<std::size_t>(std::max(numa, 0))];
    };
    for (std::size_t g = 0; g < kind_.gpus.size(); ++g)
      if (!written_gpu_[g]) home(kind_.gpus[g].numa) += capture([&] { write_gpu(g, 0, 2); });
    for (std::size_t n = 0; n < kind_.nics.size(); ++n)
      if (!written_nic_[n]) home(kind_.nics[n].numa) += capture([&] { write_nic(n, 0, 2); });
    std::int32_t first_cpu = 0;
    for (std::size_t n = 0; n < kind_.numa.size(); ++n) {
      const NumaDomain& numa = kind_.numa[n];
      line(1, fmt::format("<cpu numaid=\"{}\" affinity=\"{}\"{}>", n, mask(first_cpu, numa.cores),
                          processor(kind_.sockets[static_cast<std::size_t>(numa.socket)].model)));
      text_ += inside[n];
      line(1, "</cpu>");
      first_cpu += numa.cores;
    }
    return text_ + "</system>\n";
  }

 private:
  template <class Write>
  std::string capture(Write write) {
    std::string before = std::move(text_);
    text_.clear();
    write();
    std::swap(before, text_);
    return before;
  }
  void line(int level, const std::string& content) {
    text_ += fmt::format("{:{}}{}\n", "", 2 * level, content);
  }

  std::string id_or(const std::string& known) {
    if (!known.empty()) return known;
    while (true)
      if (std::string made = fmt::format("0000:{:02x}:{:02x}.0", next_id_ / 32 % 256, next_id_ % 32);
          ++next_id_, taken_.insert(made).second)
        return made;
  }

  /// `count` bits from `first`, in groups of 32 as Linux prints masks.
  static std::string mask(std::int32_t first, std::int32_t count) {
    std::string text;
    for (std::int32_t group = std::max(0, (first + count - 1) / 32); group >= 0; --group) {
      std::uint32_t bits = 0;
      for (int b = 0; b < 32; ++b)
        if (const std::int32_t cpu = group * 32 + b; cpu >= first && cpu < first + count) bits |= 1u << b;
      text += fmt::format("{}{:08x}", text.empty() ? "" : ",", bits);
    }
    return text;
  }

  /// NCCL wants architecture and vendor. A model that came from such a file holds them; others are told by
  /// their names.
  static std::string processor(const std::string& model) {
    const auto attributes = [](std::string_view arch, std::string_view vendor, std::string_view family,
                               std::string_view number) {
      return fmt::format(" arch=\"{}\" vendor=\"{}\" familyid=\"{}\" modelid=\"{}\"", xml_escape(arch),
                         xml_escape(vendor), xml_escape(family), xml_escape(number));
    };
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < model.size();) {
      const std::size_t end = std::min(model.find(' ', begin), model.size());
      words.push_back(model.substr(begin, end - begin));
      begin = end + 1;
    }
    if (!words.empty() && (words[0] == "x86_64" || words[0] == "arm64" || words[0] == "ppc64")) {
      constexpr const char* kNames[] = {"arch", "vendor", "familyid", "modelid"};
      std::string text;
      for (std::size_t i = 0; i < std::min<std::size_t>(4, words.size()); ++i)
        text += fmt::format(" {}=\"{}\"", kNames[i], xml_escape(words[i]));
      return text;
    }
    for (const char* arm : {"A64FX", "Neoverse", "Grace", "ARM", "Arm"})
      if (model.find(arm) != std::string::npos) return " arch=\"arm64\"";
    if (model.find("AMD") != std::string::npos || model.find("EPYC") != std::string::npos)
      return attributes("x86_64", "AuthenticAMD", "25", "17");
    return attributes("x86_64", "GenuineIntel", "6", "143");
  }

  void write_children(Part parent, int level) {
    for (const PartLink& link : kind_.links) {
      if (link.kind != PartLink::Kind::pcie || (link.a != parent && link.b != parent)) continue;
      const Part child = link.a == parent ? link.b : link.a;
      const auto index = static_cast<std::size_t>(child.index);
      if (child.kind == Part::Kind::gpu && !written_gpu_[index]) write_gpu(index, link.bandwidth, level);
      if (child.kind == Part::Kind::nic && !written_nic_[index]) write_nic(index, link.bandwidth, level);
      if (child.kind == Part::Kind::hub && !written_hub_[index] &&
          kind_.hubs[index].kind == Hub::Kind::pcie) {
        written_hub_[index] = true;
        line(level, pci(hub_ids_[index], "0x060400", link.bandwidth));
        write_children(child, level + 1);
        line(level, "</pci>");
      }
    }
  }

  static std::string pci(const std::string& id, const char* type, double bandwidth) {
    const PcieLink link = pcie_link(bandwidth > 0 ? bandwidth : 15.75e9);
    return fmt::format("<pci busid=\"{}\" class=\"{}\" link_speed=\"{}{} GT/s PCIe\" link_width=\"{}\">",
                       xml_escape(id), type, link.speed, link.speed == "2.5" ? "" : ".0", link.width);
  }

  void write_gpu(std::size_t g, double bandwidth, int level) {
    written_gpu_[g] = true;
    const Gpu& gpu = kind_.gpus[g];
    const Part self = {Part::Kind::gpu, static_cast<std::int32_t>(g)};
    line(level, pci(gpu_ids_[g], "0x030200", bandwidth));
    line(level + 1,
         fmt::format("<gpu dev=\"{}\" sm=\"{}\" rank=\"{}\" gdr=\"1\">", g, gpu.compute_capability, g));
    for (const PartLink& link : kind_.links) {
      if (link.kind != PartLink::Kind::nvlink || (link.a != self && link.b != self)) continue;
      const Part peer = link.a == self ? link.b : link.a;
      const auto links =
          std::max<std::int64_t>(1, std::llround(link.bandwidth / nvlink_rate(gpu.compute_capability)));
      const bool to_gpu = peer.kind == Part::Kind::gpu;
      if (!to_gpu && peer.kind != Part::Kind::hub) continue;
      line(level + 2,
           fmt::format("<nvlink target=\"{}\" count=\"{}\" tclass=\"{}\"/>",
                       xml_escape((to_gpu ? gpu_ids_ : hub_ids_)[static_cast<std::size_t>(peer.index)]),
                       links, to_gpu ? "0x030200" : "0x068000"));
    }
    line(level + 1, "</gpu>");
    line(level, "</pci>");
  }

  void write_nic(std::size_t first, double bandwidth, int level) {
    const std::string& id = kind_.nics[first].pci;
    const bool on_bus = bandwidth > 0 || !id.empty();
    if (on_bus) line(level, pci(id_or(id), "0x020000", bandwidth));
    line(level + (on_bus ? 1 : 0), "<nic>");
    for (std::size_t n = first; n < kind_.nics.size(); ++n) {
      const Nic& nic = kind_.nics[n];
      if (written_nic_[n] || (n != first && (id.empty() || nic.pci != id)))
        continue;  // ports of one device stay together
      written_nic_[n] = true;
      line(level + (on_bus ? 2 : 1),
           fmt::format("<net name=\"{}\" dev=\"{}\" latency=\"{}\" speed=\"{}\" port=\"1\" "
                       "maxconn=\"131072\" gdr=\"1\"/>",
                       xml_escape(nic.name), n, nic.latency_s * 1e6,
                       nic.bandwidth > 0 ? std::llround(nic.bandwidth / 125e3) : -1));
    }
    line(level + (on_bus ? 1 : 0), "</nic>");
    if (on_bus) line(level, "</pci>");
  }

  const HostKind& kind_;
  std::string text_;
  std::set<std::string> taken_;
  std::vector<std::string> gpu_ids_, hub_ids_;
  std::vector<bool> written_gpu_, written_nic_, written_hub_;
  int next_id_ = 32;
};

}  // namespace

std::string machine_to_nccl_xml(const Machine& machine) { return NcclWriter(machine.host(0)).write(); }

}  // namespace tamaki
