// Machines as text for people.
#include <fmt/format.h>

#include "topology/machine.hpp"
#include "topology/parse/description.hpp"

namespace tamaki {

std::string format_rate(double rate) {
  if (rate <= 0) return "unknown";
  for (const auto& [unit, name] : {std::pair{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}})
    if (rate >= unit) return fmt::format("{:.4g} {}", rate / unit, name);
  return fmt::format("{:.4g} B/s", rate);
}

std::string format_duration(double s) {
  if (s == 0) return "0";
  for (const auto& [unit, name] : {std::pair{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}})
    if (s >= unit) return fmt::format("{:.4g} {}", s / unit, name);
  return fmt::format("{:.4g} ns", s / 1e-9);
}

std::string shape_text(const std::vector<TorusAxis>& axes) {
  std::string text;
  for (const TorusAxis& axis : axes)
    text +=
        fmt::format("{}{}{}", text.empty() ? "" : "x", axis.size, axis.wraps || axis.size == 1 ? "" : "m");
  return text;
}

namespace {

std::string count(std::int64_t n, const char* thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

std::string describe_kind(const HostKind& kind) {
  std::int64_t cores = 0;
  for (const NumaDomain& numa : kind.numa) cores += numa.cores;
  std::string text =
      fmt::format("  host \"{}\": {}, {}, {}, {}", kind.name, count(kind.slots, "slot"),
                  count(static_cast<std::int64_t>(kind.sockets.size()), "socket"),
                  count(static_cast<std::int64_t>(kind.numa.size()), "NUMA domain"), count(cores, "core"));
  if (!kind.sockets[0].model.empty()) text += fmt::format(" ({})", kind.sockets[0].model);
  if (!kind.gpus.empty()) {
    text += fmt::format("\n    {}", count(static_cast<std::int64_t>(kind.gpus.size()), "GPU"));
    if (!kind.gpus[0].model.empty()) text += fmt::format(" ({})", kind.gpus[0].model);
  }
  for (const PartLink& link : kind.links)
    if (link.kind == PartLink::Kind::nvlink) {
      text += fmt::format(", NVLink {} each", format_rate(link.bandwidth));
      break;
    }
  if (!kind.nics.empty())
    text += fmt::format("\n    {} of {}", count(static_cast<std::int64_t>(kind.nics.size()), "NIC"),
                        format_rate(kind.nics[0].bandwidth));
  return text + "\n";
}

std::string describe_fabric(const Machine& m) {
  if (const Torus* t = m.torus()) {
    std::string text = fmt::format("  torus {}: links of {}, {} of {}, injection {}, {} a hop\n",
                                   shape_text(t->dimensions()), format_rate(t->link_bandwidth),
                                   count(t->engines, "engine"), format_rate(t->engine_rate()),
                                   format_rate(t->injection_rate()), format_duration(t->hop_latency_s));
    if (t->logical.empty()) return text;
    text += fmt::format("    physical {}:", count(t->points(), "point"));
    for (const TorusAxis& axis : t->axes)
      text += fmt::format(" {}{}{}", axis.name, axis.size, axis.size > 1 && !axis.wraps ? "m" : "");
    for (const LogicalAxis& axis : t->logical) {
      text += ";";
      for (const std::int32_t a : axis.axes) text += " " + t->axes[static_cast<std::size_t>(a)].name;
      text += fmt::format(" carry {}{}", axis.points.size(), axis.wraps ? " (ring)" : "");
    }
    return text + "\n";
  }
  if (const LeafSpine* f = m.leaf_spine())
    return fmt::format(
        "  leaf-spine{}: {} of {}, {}, {} of {} a host, uplinks of {}, oversubscription {:.3g}\n",
        f->rail_optimized ? ", rail-optimized" : "",
        fmt::format("{} {}", f->leaves(m.hosts), f->leaves(m.hosts) == 1 ? "leaf" : "leaves"),
        count(f->hosts_per_pod, "host"), count(f->spines, "spine"), count(f->nics_per_host, "link"),
        format_rate(f->nic_bandwidth), format_rate(f->uplink_bandwidth), f->oversubscription());
  if (const auto* g = std::get_if<Graph>(&m.fabric))
    return fmt::format("  {} and {}\n", count(g->switches, "switch"),
                       count(static_cast<std::int64_t>(g->cables.size()), "cable"));
  const auto& crossbar = std::get<Crossbar>(m.fabric);
  if (m.hosts == 1) return {};
  return fmt::format("  one switch, links of {}, {}\n", format_rate(crossbar.link_bandwidth),
                     format_duration(crossbar.link_latency_s));
}

}  // namespace

std::string describe(const Machine& m) {
  std::string text = fmt::format("{}: {}, {}\n", m.name, count(m.hosts, "host"), count(m.slots(), "slot"));
  for (const HostKind& kind : m.kinds) text += describe_kind(kind);
  text += describe_fabric(m);
  const NetworkModel& k = m.model;
  text += fmt::format("  model: startup {}, efficiency of links {:.3g}, local reduction {}",
                      format_duration(k.startup_s), k.link_efficiency,
                      k.reduce_bandwidth > 0 ? format_rate(k.reduce_bandwidth) : "free");
  if (k.eager_bytes > 0)
    text += fmt::format(", rendezvous {} above {} B", format_duration(k.rendezvous_s), k.eager_bytes);
  return text + "\n";
}

}  // namespace tamaki
