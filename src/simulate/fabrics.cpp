#include "simulate/fabrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace tamaki::simulation {
namespace {

/// Ranks on each host.
std::vector<std::int32_t> count_ranks(const Machine& machine, const Placement& placement) {
  std::vector<std::int32_t> count(static_cast<std::size_t>(machine.hosts));
  for (const Place& place : placement.ranks) ++count[static_cast<std::size_t>(place.host)];
  return count;
}

/// A fabric whose hosts have several NICs or engines: ranks of a host part them evenly, and the lanes of a
/// rank go round the rank's part.
class Fabric : public Network {
 public:
  Fabric(const Machine& machine, const Placement& placement, const NetworkOptions& options,
         std::int32_t nics)
      : Network(machine, placement, options), count_(count_ranks(machine, placement)), nics_a_host_(nics) {}

 protected:
  std::int32_t nic_of(std::int32_t rank, std::int32_t lane) const override {
    const Place& place = placement_.ranks[static_cast<std::size_t>(rank)];
    const std::int32_t on_host = count_[static_cast<std::size_t>(place.host)];
    const std::int32_t part = std::max(1, nics_a_host_ / on_host);
    const std::int32_t first = place.nic >= 0 ? place.nic : place.slot * part;
    return (first + lane % part) % nics_a_host_;
  }
  double injection_rate(std::int32_t) const override { return 0; }

 private:
  std::vector<std::int32_t> count_;
  std::int32_t nics_a_host_;
};

class CrossbarNetwork : public Fabric {
 public:
  CrossbarNetwork(const Machine& machine, const Placement& placement, const NetworkOptions& options)
      : Fabric(machine, placement, options, most_nics(machine)),
        fabric_(std::get<Crossbar>(machine.fabric)) {
    add_hosts(most_nics(machine));
  }

 private:
  static std::int32_t most_nics(const Machine& machine) {
    std::size_t most = 1;
    for (const HostKind& kind : machine.kinds) most = std::max(most, kind.nics.size());
    return static_cast<std::int32_t>(most);
  }
  bool fabric_route(Way* way, Route* route) const override {
    route->latency_s += 2 * fabric_.link_latency_s;
    route->hops += 2;
    return way->attempt == 0;  // the NICs' own links are all there is
  }
  std::string fabric_link_name(std::int32_t link) const override { return fmt::format("link {}", link); }
  double nic_rate(std::int32_t, std::int32_t) const override { return fabric_.link_bandwidth; }

  Crossbar fabric_;
};

class TorusNetwork : public Fabric {
 public:
  TorusNetwork(const Machine& machine, const Placement& placement, const NetworkOptions& options)
      : Fabric(machine, placement, options, std::get<Torus>(machine.fabric).engines),
        torus_(std::get<Torus>(machine_.fabric)),
        axes_(static_cast<int>(torus_.axes.size())) {
    add_hosts(torus_.engines);
    const std::int64_t points = torus_.points();
    for (std::int64_t point = 0; point < points; ++point) {
      const std::vector<std::int32_t> at = torus_.point_coordinates(point);
      for (int axis = 0; axis < axes_; ++axis)
        for (int way = 0; way < 2; ++way)
          add(has_link(axis, at[static_cast<std::size_t>(axis)], way) ? rate() : 0);
    }
    for (std::int64_t host = 0; host < torus_.hosts(); ++host) {
      point_of_host_.push_back(static_cast<std::int32_t>(torus_.point_of(torus_.coordinates(host))));
    }
    stride_.assign(static_cast<std::size_t>(axes_), 1);
    for (int axis = axes_ - 2; axis >= 0; --axis)
      stride_[static_cast<std::size_t>(axis)] = stride_[static_cast<std::size_t>(axis) + 1] *
                                                torus_.axes[static_cast<std::size_t>(axis) + 1].size;
  }

 private:
  double rate() const { return torus_.link_bandwidth * machine_.model.link_efficiency; }
  bool has_link(int axis, std::int32_t at, int way) const {
    const TorusAxis& a = torus_.axes[static_cast<std::size_t>(axis)];
    if (a.size == 1) return false;
    return a.wraps || (way == 0 ? at + 1 < a.size : at > 0);
  }
  double nic_rate(std::int32_t, std::int32_t) const override { return torus_.engine_rate(); }
  double injection_rate(std::int32_t) const override {
    const double share = machine_.model.injection_efficiency / machine_.model.link_efficiency;
    return torus_.injection_rate() * share < torus_.engines * torus_.engine_rate() ? torus_.injection_rate()
                                                                                   : 0;
  }
  std::int32_t coordinate(std::int32_t point, int axis) const {
    return point / stride_[static_cast<std::size_t>(axis)] %
           torus_.axes[static_cast<std::size_t>(axis)].size;
  }

  /// Along one axis to coordinate `to`; the shorter way round, or the other one if `flip`.
  struct Walk {
    std::int32_t point = 0;
    std::int32_t lane = 0;
    int flips = 0;  // bit `axis`: the longer way round
  };
  void along(int axis, std::int32_t to, Walk* walk, Route* route) const {
    const TorusAxis& a = torus_.axes[static_cast<std::size_t>(axis)];
    std::int32_t at = coordinate(walk->point, axis);
    if (at == to) return;
    std::int32_t up = (to - at + a.size) % a.size;
    bool upwards = to > at;
    if (a.wraps) {
      upwards = 2 * up < a.size || (2 * up == a.size && walk->lane % 2 == 0);
      if ((walk->flips >> axis & 1) != 0) upwards = !upwards;
    }
    const std::int32_t stride = stride_[static_cast<std::size_t>(axis)];
    while (at != to) {
      route->links.push_back(first_fabric_ + (walk->point * axes_ + axis) * 2 + (upwards ? 0 : 1));
      const std::int32_t next = upwards ? (at + 1 == a.size ? 0 : at + 1) : (at == 0 ? a.size - 1 : at - 1);
      walk->point += (next - at) * stride;
      at = next;
      ++route->hops;
      route->latency_s += torus_.hop_latency_s;
    }
  }

  bool fabric_route(Way* way, Route* route) const override {
    const std::int32_t goal = point_of_host_[static_cast<std::size_t>(way->to.host)];
    Walk walk{.point = point_of_host_[static_cast<std::size_t>(way->from.host)], .lane = way->lane};
    // Of the axes that come in order 0, 1, ... and, with Tofu, three that come before and after.
    const int inner = torus_.routing == Torus::Routing::tofu && axes_ > 3 ? axes_ - 3 : axes_;
    int attempt = way->attempt;
    if (inner < axes_) {
      const int paths = stride_[static_cast<std::size_t>(inner) - 1];
      const int path = attempt % (paths + 1);
      attempt /= paths + 1;
      const std::uint64_t hash =
          hashed(static_cast<std::uint64_t>(walk.point), static_cast<std::uint64_t>(goal),
                 static_cast<std::uint64_t>(way->lane));
      for (int axis = inner; axis < axes_; ++axis) {
        const bool receivers = options_.seed != 0 && (hash >> (axis - inner) & 1) != 0;
        const std::int32_t own = coordinate(receivers ? goal : walk.point, axis);
        along(axis, path == 0 ? own : coordinate(path - 1, axis), &walk, route);
      }
    }
    const int flips = 1 << std::min(inner, 6), first = attempt / flips % inner;
    if (attempt / flips >= inner) return false;
    walk.flips = attempt % flips;
    for (int i = 0; i < inner; ++i)
      along((first + i) % inner, coordinate(goal, (first + i) % inner), &walk, route);
    for (int axis = inner; axis < axes_; ++axis) along(axis, coordinate(goal, axis), &walk, route);
    return true;
  }

  std::string fabric_link_name(std::int32_t link) const override {
    const std::int32_t at = link - first_fabric_, axis = at / 2 % axes_;
    const std::string& name = torus_.axes[static_cast<std::size_t>(axis)].name;
    return fmt::format("{}{} ({})", name.empty() ? fmt::format("axis {} ", axis) : name,
                       at % 2 == 0 ? '+' : '-', fmt::join(torus_.point_coordinates(at / 2 / axes_), ","));
  }

  const Torus& torus_;
  int axes_;
  std::vector<std::int32_t> stride_, point_of_host_;
};

class LeafSpineNetwork : public Fabric {
 public:
  LeafSpineNetwork(const Machine& machine, const Placement& placement, const NetworkOptions& options)
      : Fabric(machine, placement, options, std::get<LeafSpine>(machine.fabric).nics_per_host),
        fabric_(std::get<LeafSpine>(machine_.fabric)) {
    add_hosts(fabric_.nics_per_host);
    const std::int32_t leaves = fabric_.leaves(machine_.hosts);
    for (std::int32_t i = 0; i < leaves * fabric_.spines * 2; ++i)
      add(fabric_.uplink_bandwidth * machine_.model.link_efficiency);
  }

 private:
  double nic_rate(std::int32_t, std::int32_t) const override { return fabric_.nic_bandwidth; }
  bool fabric_route(Way* way, Route* route) const override {
    const std::int32_t up = fabric_.leaf_of(way->from.host, way->from_nic);
    const std::int32_t down = fabric_.leaf_of(way->to.host, way->to_nic);
    route->latency_s += 2 * fabric_.nic_latency_s;
    route->hops += 2;
    if (up == down) return way->attempt == 0;
    if (way->attempt >= fabric_.spines) return false;
    const auto end = [&](std::int32_t host, std::int32_t nic) {
      return static_cast<std::uint64_t>(host) * static_cast<std::uint64_t>(fabric_.nics_per_host) +
             static_cast<std::uint64_t>(nic);
    };
    const std::uint64_t hash = hashed(end(way->from.host, way->from_nic), end(way->to.host, way->to_nic),
                                      static_cast<std::uint64_t>(way->lane));
    const auto spines = static_cast<std::uint64_t>(fabric_.spines);
    const auto spine =
        static_cast<std::int32_t>((hash + static_cast<std::uint64_t>(way->attempt)) % spines);
    route->links.push_back(first_fabric_ + (up * fabric_.spines + spine) * 2);
    route->links.push_back(first_fabric_ + (down * fabric_.spines + spine) * 2 + 1);
    route->latency_s += 2 * fabric_.uplink_latency_s;
    route->hops += 2;
    return true;
  }
  std::string fabric_link_name(std::int32_t link) const override {
    const std::int32_t at = link - first_fabric_, leaf = at / 2 / fabric_.spines,
                       spine = at / 2 % fabric_.spines;
    return at % 2 == 0 ? fmt::format("leaf {} to spine {}", leaf, spine)
                       : fmt::format("spine {} to leaf {}", spine, leaf);
  }

  const LeafSpine& fabric_;
};

class GraphNetwork : public Fabric {
 public:
  GraphNetwork(const Machine& machine, const Placement& placement, const NetworkOptions& options)
      : Fabric(machine, placement, options, most_nics(std::get<Graph>(machine.fabric))),
        graph_(std::get<Graph>(machine_.fabric)),
        edges_(static_cast<std::size_t>(machine.hosts + graph_.switches)) {
    const std::int32_t nics = most_nics(graph_);
    rate_.assign(static_cast<std::size_t>(machine_.hosts * nics), 0);
    nics_in_all_ = nics;
    for (std::size_t c = 0; c < graph_.cables.size(); ++c) {
      const Graph::Cable& cable = graph_.cables[c];
      for (int way = 0; way < 2; ++way) {
        const Graph::End& from = way == 0 ? cable.a : cable.b;
        const Graph::End& to = way == 0 ? cable.b : cable.a;
        edges_[node(from)].push_back(
            {static_cast<std::int32_t>(node(to)), static_cast<std::int32_t>(c) * 2 + way});
        if (!from.is_switch)
          rate_[static_cast<std::size_t>(from.index * nics + from.nic)] += cable.bandwidth;
      }
    }
    add_hosts(nics);
    for (const Graph::Cable& cable : graph_.cables) {
      add(cable.bandwidth * machine_.model.link_efficiency);
      add(cable.bandwidth * machine_.model.link_efficiency);
    }
  }

 private:
  struct Edge {
    std::int32_t to = 0;
    std::int32_t cable = 0;  // * 2 + way
  };
  static std::int32_t most_nics(const Graph& graph) {
    std::int32_t most = 1;
    for (const Graph::Cable& cable : graph.cables)
      for (const Graph::End& end : {cable.a, cable.b})
        if (!end.is_switch) most = std::max(most, end.nic + 1);
    return most;
  }
  std::size_t node(const Graph::End& end) const {
    return static_cast<std::size_t>(end.is_switch ? machine_.hosts + end.index : end.index);
  }
  double nic_rate(std::int32_t host, std::int32_t nic) const override {
    return rate_[static_cast<std::size_t>(host * nics_in_all_ + nic)];
  }

  /// Cables to `goal` from every node, -1: none. Hosts pass messages on only where no switch does: a hop
  /// through one counts as much as any path of switches.
  const std::vector<std::int32_t>& distances(std::int32_t goal) const {
    auto [it, fresh] = distances_.try_emplace(goal);
    if (!fresh) return it->second;
    std::vector<std::int32_t>& far = it->second;
    far.assign(edges_.size(), -1);
    std::map<std::int32_t, std::vector<std::int32_t>> open{{0, {goal}}};
    while (!open.empty()) {
      const auto layer = open.extract(open.begin());
      for (const std::int32_t at : layer.mapped()) {
        std::int32_t& own = far[static_cast<std::size_t>(at)];
        if (own >= 0) continue;
        own = layer.key();
        const std::int32_t cost = cost_through(at, goal);
        for (const Edge& edge : edges_[static_cast<std::size_t>(at)])
          if (far[static_cast<std::size_t>(edge.to)] < 0) open[own + cost].push_back(edge.to);
      }
    }
    return far;
  }

  bool fabric_route(Way* way, Route* route) const override {
    if (way->attempt > 0 && graph_.cables.empty()) return false;
    const std::vector<std::int32_t>& far = distances(way->to.host);
    std::int32_t at = way->from.host;
    const std::int32_t limit = 2 * static_cast<std::int32_t>(edges_.size());
    for (std::int32_t hop = 0; at != way->to.host; ++hop) {
      if (far[static_cast<std::size_t>(at)] < 0 || hop > limit) return false;
      std::vector<const Edge*> best;
      std::int32_t least = -1;
      for (const Edge& edge : edges_[static_cast<std::size_t>(at)]) {
        const std::int32_t left = far[static_cast<std::size_t>(edge.to)];
        if (left < 0) continue;
        const std::int32_t whole = left + cost_through(edge.to, way->to.host);
        if (least >= 0 && whole > least) continue;
        if (whole != least) best.clear();
        least = whole;
        best.push_back(&edge);
      }
      if (best.empty()) return false;
      // The wished NIC where it is among the best ways, else by hash.
      const Edge* taken = nullptr;
      if (hop == 0 && way->attempt == 0)
        for (const Edge* edge : best)
          if (end_of(*edge, 0).nic == way->from_nic && taken == nullptr) taken = edge;
      if (taken == nullptr) {
        const std::uint64_t hash =
            hashed(static_cast<std::uint64_t>(way->from.host), static_cast<std::uint64_t>(way->to.host),
                   static_cast<std::uint64_t>(way->lane) * 1024 + static_cast<std::uint64_t>(hop));
        taken = best[(hash + static_cast<std::uint64_t>(way->attempt)) % best.size()];
      }
      if (hop == 0) way->from_nic = end_of(*taken, 0).nic;
      if (taken->to == way->to.host) way->to_nic = end_of(*taken, 1).nic;
      route->links.push_back(first_fabric_ + taken->cable);
      route->latency_s += graph_.cables[static_cast<std::size_t>(taken->cable) / 2].latency_s;
      ++route->hops;
      at = taken->to;
    }
    return true;
  }
  std::int32_t cost_through(std::int32_t node, std::int32_t goal) const {
    return node < machine_.hosts && node != goal ? static_cast<std::int32_t>(edges_.size()) : 1;
  }
  const Graph::End& end_of(const Edge& edge, int end) const {
    const Graph::Cable& cable = graph_.cables[static_cast<std::size_t>(edge.cable) / 2];
    return edge.cable % 2 == end ? cable.a : cable.b;
  }
  std::string fabric_link_name(std::int32_t link) const override {
    const std::int32_t at = link - first_fabric_;
    const Graph::Cable& cable = graph_.cables[static_cast<std::size_t>(at) / 2];
    const auto name = [](const Graph::End& end) {
      return end.is_switch ? fmt::format("switch {}", end.index)
                           : fmt::format("nic {} of host {}", end.nic, end.index);
    };
    return fmt::format("cable {}, {} to {}", at / 2, name(at % 2 == 0 ? cable.a : cable.b),
                       name(at % 2 == 0 ? cable.b : cable.a));
  }

  const Graph& graph_;
  std::int32_t nics_in_all_ = 1;
  std::vector<std::vector<Edge>> edges_;  // hosts, then switches
  std::vector<double> rate_;              // host * nics + nic
  mutable std::map<std::int32_t, std::vector<std::int32_t>> distances_;
};

}  // namespace

std::unique_ptr<Network> make_fabric(const Machine& machine, const Placement& placement,
                                     const NetworkOptions& options) {
  if (std::holds_alternative<Torus>(machine.fabric))
    return std::make_unique<TorusNetwork>(machine, placement, options);
  if (std::holds_alternative<LeafSpine>(machine.fabric))
    return std::make_unique<LeafSpineNetwork>(machine, placement, options);
  if (std::holds_alternative<Graph>(machine.fabric))
    return std::make_unique<GraphNetwork>(machine, placement, options);
  return std::make_unique<CrossbarNetwork>(machine, placement, options);
}

}  // namespace tamaki::simulation
