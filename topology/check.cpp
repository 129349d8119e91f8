// check(): the invariants of a machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "topology/machine.hpp"
#include "topology/parse/description.hpp"

namespace tamaki {

namespace {

/// Collects the first error; later ones are most often its consequences.
class Checker {
 public:
  Status status() const { return first_ ? Status(tl::unexpected<Error>(*first_)) : Status(); }
  bool failed() const { return first_.has_value(); }

  void wrong(const std::string& field, const std::string& text) {
    if (!first_) first_ = Error{Code::invalid_argument, Scope::request, field + ": " + text};
  }
  void range(const std::string& field, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) wrong(field, fmt::format("{} is not in {}..{}", value, low, high));
  }
  /// A rate in B/s: finite and above 0.
  void rate(const std::string& field, double value) {
    if (!(value > 0) || !std::isfinite(value))
      wrong(field, fmt::format("{} is no rate; it must be above 0 B/s", value));
  }
  void rate_or_unknown(const std::string& field, double value) {
    if (!(value >= 0) || !std::isfinite(value))
      wrong(field, fmt::format("{} is negative or not finite; 0 stands for not known", value));
  }
  void duration(const std::string& field, double value) {
    if (!(value >= 0) || !std::isfinite(value) || value > 1e3)
      wrong(field, fmt::format("{} is no time in 0..1000 s", value));
  }
  void share(const std::string& field, double value) {
    if (!(value > 0 && value <= 1)) wrong(field, fmt::format("{} is no share in (0, 1]", value));
  }

 private:
  std::optional<Error> first_;
};

std::size_t count_of(const HostKind& kind, Part::Kind part) {
  switch (part) {
    case Part::Kind::numa:
      return kind.numa.size();
    case Part::Kind::gpu:
      return kind.gpus.size();
    case Part::Kind::nic:
      return kind.nics.size();
    case Part::Kind::hub:
      return kind.hubs.size();
  }
  return 0;
}

void check_parts(Checker& c, const HostKind& kind, const std::string& at) {
  const auto size = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  const auto item = [&](const char* list, std::size_t i, const char* field) {
    return fmt::format("{}.{}[{}].{}", at, list, i, field);
  };
  const std::int64_t numa = size(kind.numa), gpus = size(kind.gpus);
  for (std::size_t i = 0; i < kind.numa.size() && !c.failed(); ++i) {
    const NumaDomain& n = kind.numa[i];
    c.range(item("numa", i, "socket"), n.socket, 0, size(kind.sockets) - 1);
    c.range(item("numa", i, "cores"), n.cores, 0, 1 << 20);
    c.rate_or_unknown(item("numa", i, "memory_bytes"), n.memory_bytes);
    c.rate_or_unknown(item("numa", i, "memory_bandwidth"), n.memory_bandwidth);
  }
  for (std::size_t i = 0; i < kind.gpus.size() && !c.failed(); ++i) {
    const Gpu& g = kind.gpus[i];
    c.range(item("gpus", i, "numa"), g.numa, -1, numa - 1);
    c.range(item("gpus", i, "compute_capability"), g.compute_capability, 0, 10'000);
    c.rate_or_unknown(item("gpus", i, "memory_bytes"), g.memory_bytes);
    c.rate_or_unknown(item("gpus", i, "memory_bandwidth"), g.memory_bandwidth);
  }
  for (std::size_t i = 0; i < kind.nics.size() && !c.failed(); ++i) {
    const Nic& n = kind.nics[i];
    c.range(item("nics", i, "numa"), n.numa, -1, numa - 1);
    c.range(item("nics", i, "gpu"), n.gpu, -1, gpus - 1);
    c.range(item("nics", i, "rail"), n.rail, -1, kMostParts);
    c.rate_or_unknown(item("nics", i, "bandwidth"), n.bandwidth);
    c.duration(item("nics", i, "latency_s"), n.latency_s);
  }
}

void check_links(Checker& c, const HostKind& kind, const std::string& at) {
  std::vector<std::tuple<Part, Part, PartLink::Kind>> seen;
  for (std::size_t i = 0; i < kind.links.size() && !c.failed(); ++i) {
    const PartLink& link = kind.links[i];
    const std::string field = fmt::format("{}.links[{}]", at, i);
    for (const Part& end : {link.a, link.b})
      if (end.index < 0 || static_cast<std::size_t>(end.index) >= count_of(kind, end.kind))
        c.wrong(field + ".between", fmt::format("the host has no {}:{}", name_of(end.kind), end.index));
    if (link.a == link.b) c.wrong(field + ".between", "both ends are the same part");
    c.rate(field + ".bandwidth", link.bandwidth);
    c.duration(field + ".latency_s", link.latency_s);
    seen.emplace_back(std::min(link.a, link.b), std::max(link.a, link.b), link.kind);
  }
  std::sort(seen.begin(), seen.end());
  if (const auto twice = std::adjacent_find(seen.begin(), seen.end()); twice != seen.end())
    c.wrong(at + ".links", fmt::format("two links of one kind between {}:{} and {}:{}",
                                       name_of(std::get<0>(*twice).kind), std::get<0>(*twice).index,
                                       name_of(std::get<1>(*twice).kind), std::get<1>(*twice).index));
}

void check_kind(Checker& c, const HostKind& kind, const std::string& at) {
  c.range(at + ".slots", kind.slots, 1, 1 << 20);
  const auto size = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  c.range(at + ".sockets", size(kind.sockets), 1, kMostParts);
  c.range(at + ".numa", size(kind.numa), 1, kMostParts);
  c.range(at + ".gpus", size(kind.gpus), 0, kMostParts);
  c.range(at + ".nics", size(kind.nics), 0, kMostParts);
  c.range(at + ".hubs", size(kind.hubs), 0, kMostParts);
  c.range(at + ".links", size(kind.links), 0, 8 * kMostParts);
  if (!c.failed()) check_parts(c, kind, at);
  if (!c.failed()) check_links(c, kind, at);
}

void check_logical(Checker& c, const Torus& t) {
  std::vector<bool> taken(t.axes.size());
  std::int64_t hosts = 1;
  c.range("fabric.logical", static_cast<std::int64_t>(t.logical.size()), 0, kMostAxes);
  for (std::size_t d = 0; d < t.logical.size() && !c.failed(); ++d) {
    const LogicalAxis& axis = t.logical[d];
    const std::string at = fmt::format("fabric.logical[{}]", d);
    if (axis.axes.empty()) c.wrong(at + ".axes", "it lies on no axis");
    for (const std::int32_t a : axis.axes) {
      c.range(at + ".axes", a, 0, static_cast<std::int64_t>(t.axes.size()) - 1);
      if (c.failed()) return;
      if (taken[static_cast<std::size_t>(a)])
        c.wrong(at + ".axes",
                fmt::format("axis {} is used twice", t.axes[static_cast<std::size_t>(a)].name));
      taken[static_cast<std::size_t>(a)] = true;
    }
    c.range(at + ".points", static_cast<std::int64_t>(axis.points.size()), 1, kMostHosts);
    for (std::size_t i = 0; i < axis.points.size() && !c.failed(); ++i) {
      const std::string point = fmt::format("{}.points[{}]", at, i);
      if (axis.points[i].size() != axis.axes.size())
        c.wrong(point, fmt::format("{} coordinates for {} axes", axis.points[i].size(), axis.axes.size()));
      else
        for (std::size_t k = 0; k < axis.axes.size(); ++k)
          c.range(point, axis.points[i][k], 0, t.axes[static_cast<std::size_t>(axis.axes[k])].size - 1);
    }
    auto points = axis.points;
    std::sort(points.begin(), points.end());
    if (std::adjacent_find(points.begin(), points.end()) != points.end())
      c.wrong(at + ".points", "one point is there twice");
    hosts *= static_cast<std::int64_t>(axis.points.size());
    if (hosts > kMostHosts) c.wrong(at, fmt::format("more than {} hosts", kMostHosts));
  }
}

void check_torus(Checker& c, const Torus& t, std::int32_t hosts) {
  c.range("fabric.axes", static_cast<std::int64_t>(t.axes.size()), 1, kMostAxes);
  std::int64_t points = 1;
  for (std::size_t d = 0; d < t.axes.size() && !c.failed(); ++d) {
    c.range(fmt::format("fabric.axes[{}].size", d), t.axes[d].size, 1, kMostPoints);
    points *= t.axes[d].size;
    c.range("fabric.axes", points, 1, kMostPoints);
  }
  if (c.failed()) return;
  check_logical(c, t);
  c.rate("fabric.link_bandwidth", t.link_bandwidth);
  c.range("fabric.engines", t.engines, 1, kMostParts);
  c.rate_or_unknown("fabric.engine_bandwidth", t.engine_bandwidth);
  c.rate_or_unknown("fabric.injection_bandwidth", t.injection_bandwidth);
  c.duration("fabric.hop_latency_s", t.hop_latency_s);
  if (t.routing == Torus::Routing::tofu && t.axes.size() < 4)
    c.wrong("fabric.routing", "tofu needs three inner axes, and outer ones before them");
  if (!c.failed() && t.hosts() != hosts)
    c.wrong("hosts", fmt::format("{} hosts on a torus of {}", hosts, t.hosts()));
}

void check_leaf_spine(Checker& c, const LeafSpine& f, std::int32_t hosts) {
  c.range("fabric.nics_per_host", f.nics_per_host, 1, kMostParts);
  c.range("fabric.hosts_per_pod", f.hosts_per_pod, 1, kMostHosts);
  c.range("fabric.spines", f.spines, 1, kMostHosts);
  c.rate("fabric.nic_bandwidth", f.nic_bandwidth);
  c.rate("fabric.uplink_bandwidth", f.uplink_bandwidth);
  c.duration("fabric.nic_latency_s", f.nic_latency_s);
  c.duration("fabric.uplink_latency_s", f.uplink_latency_s);
  if (c.failed()) return;
  const std::int64_t pods = (static_cast<std::int64_t>(hosts) + f.hosts_per_pod - 1) / f.hosts_per_pod;
  const std::int64_t leaves = pods * (f.rail_optimized ? f.nics_per_host : 1);
  if (leaves > kMostCables / f.spines || static_cast<std::int64_t>(hosts) * f.nics_per_host > kMostCables)
    c.wrong("fabric", fmt::format("{} leaves, {} spines and {} hosts of {} NICs have more than {} cables",
                                  leaves, f.spines, hosts, f.nics_per_host, kMostCables));
}

void check_graph(Checker& c, const Graph& g, const Machine& m) {
  c.range("fabric.switches", g.switches, 0, kMostHosts);
  c.range("fabric.cables", static_cast<std::int64_t>(g.cables.size()), 0, kMostCables);
  for (std::size_t i = 0; i < g.cables.size() && !c.failed(); ++i) {
    const Graph::Cable& cable = g.cables[i];
    const auto at = [&] { return fmt::format("fabric.cables[{}]", i); };
    for (const Graph::End& end : {cable.a, cable.b}) {
      const std::int32_t most = end.is_switch ? g.switches : m.hosts;
      if (end.index < 0 || end.index >= most)
        c.wrong(at() + ".between",
                fmt::format("there is no {} {}", end.is_switch ? "switch" : "host", end.index));
      else if (!end.is_switch &&
               (end.nic < 0 || static_cast<std::size_t>(end.nic) >=
                                   std::max<std::size_t>(1, m.host(end.index).nics.size())))
        c.wrong(at() + ".between", fmt::format("host {} has no NIC {}", end.index, end.nic));
    }
    if (cable.a == cable.b) c.wrong(at() + ".between", "both ends are the same");
    if (!(cable.bandwidth > 0) || !std::isfinite(cable.bandwidth))
      c.rate(at() + ".bandwidth", cable.bandwidth);
    if (cable.latency_s != 0) c.duration(at() + ".latency_s", cable.latency_s);
  }
}

void check_model(Checker& c, const NetworkModel& m) {
  c.duration("model.startup_s", m.startup_s);
  c.duration("model.send_overhead_s", m.send_overhead_s);
  c.duration("model.receive_overhead_s", m.receive_overhead_s);
  c.rate_or_unknown("model.eager_bytes", m.eager_bytes);
  c.rate_or_unknown("model.eager_bytes_per_hop", m.eager_bytes_per_hop);
  c.rate_or_unknown("model.eager_bandwidth", m.eager_bandwidth);
  c.duration("model.rendezvous_s", m.rendezvous_s);
  c.share("model.link_efficiency", m.link_efficiency);
  c.share("model.injection_efficiency", m.injection_efficiency);
  c.rate_or_unknown("model.reduce_bandwidth", m.reduce_bandwidth);
  c.rate_or_unknown("model.copy_bandwidth", m.copy_bandwidth);
  c.duration("model.step_s", m.step_s);
  c.duration("model.inside_startup_s", m.inside_startup_s);
  c.rate("model.inside_bandwidth", m.inside_bandwidth);
  c.rate_or_unknown("model.inside_copy_bandwidth", m.inside_copy_bandwidth);
}

}  // namespace

Status check(const Machine& m) {
  Checker c;
  c.range("hosts", m.hosts, 1, kMostHosts);
  c.range("kinds", static_cast<std::int64_t>(m.kinds.size()), 1, kMostHosts);
  for (std::size_t i = 0; i < m.kinds.size() && !c.failed(); ++i)
    check_kind(c, m.kinds[i], m.kinds.size() == 1 ? "host" : fmt::format("kinds[{}]", i));
  const auto entries = [&](const char* field, std::size_t size) {
    if (size != 0 && size != static_cast<std::size_t>(m.hosts))
      c.wrong(field, fmt::format("{} entries for {} hosts", size, m.hosts));
  };
  entries("kind_of_host", m.kind_of_host.size());
  entries("host_names", m.host_names.size());
  for (std::size_t h = 0; h < m.kind_of_host.size() && !c.failed(); ++h)
    if (const auto kind = m.kind_of_host[h]; kind < 0 || static_cast<std::size_t>(kind) >= m.kinds.size())
      c.range(fmt::format("kind_of_host[{}]", h), kind, 0, static_cast<std::int64_t>(m.kinds.size()) - 1);
  if (c.failed()) return c.status();
  if (const auto* crossbar = std::get_if<Crossbar>(&m.fabric)) {
    c.rate("fabric.link_bandwidth", crossbar->link_bandwidth);
    c.duration("fabric.link_latency_s", crossbar->link_latency_s);
  }
  if (m.torus()) check_torus(c, *m.torus(), m.hosts);
  if (m.leaf_spine()) check_leaf_spine(c, *m.leaf_spine(), m.hosts);
  if (const auto* graph = std::get_if<Graph>(&m.fabric)) check_graph(c, *graph, m);
  check_model(c, m.model);
  return c.status();
}

}  // namespace tamaki
