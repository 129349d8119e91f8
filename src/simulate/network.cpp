#include "simulate/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>

#include "simulate/fabrics.hpp"

namespace tamaki {

namespace {

// Ways that are tried round broken links.
constexpr int kAttempts = 64;

std::size_t node_of(const HostKind& kind, Part part) {
  std::size_t base = 0;
  if (part.kind > Part::Kind::numa) base += kind.numa.size();
  if (part.kind > Part::Kind::gpu) base += kind.gpus.size();
  if (part.kind > Part::Kind::nic) base += kind.nics.size();
  return base + static_cast<std::size_t>(part.index);
}

}  // namespace

/// Least-time paths between the parts of a host of one kind, found when first asked for.
struct Network::HostPaths {
  struct Hop {
    std::int32_t link = 0;  // PartLink number * 2 + way (0: a to b)
    double latency_s = 0;
  };
  explicit HostPaths(const HostKind& of) : kind(of) {
    nodes = kind.numa.size() + kind.gpus.size() + kind.nics.size() + kind.hubs.size();
    edges.resize(nodes);
    for (std::size_t l = 0; l < kind.links.size(); ++l) {
      const PartLink& link = kind.links[l];
      edges[node_of(kind, link.a)].emplace_back(node_of(kind, link.b), static_cast<std::int32_t>(l) * 2);
      edges[node_of(kind, link.b)].emplace_back(node_of(kind, link.a),
                                                static_cast<std::int32_t>(l) * 2 + 1);
    }
  }
  /// Empty where there is no path. Only hubs and NUMA domains pass data on.
  const std::vector<Hop>& path(Part from, Part to) {
    const auto key = std::pair(node_of(kind, from), node_of(kind, to));
    const auto [it, fresh] = found.try_emplace(key);
    if (fresh) it->second = search(key.first, key.second);
    return it->second;
  }

 private:
  bool passes(std::size_t node) const {
    return node < kind.numa.size() || node >= kind.numa.size() + kind.gpus.size() + kind.nics.size();
  }
  std::vector<Hop> search(std::size_t from, std::size_t to) const {
    // Dijkstra; a link costs the time of one byte, so that a fast detour (NVSwitch) is better than PCIe.
    using Entry = std::pair<double, std::size_t>;
    std::vector<double> cost(nodes, -1);
    std::vector<std::int32_t> by(nodes, -1);
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    cost[from] = 0;
    open.emplace(0, from);
    while (!open.empty()) {
      const auto [at, node] = open.top();
      open.pop();
      if (at > cost[node] || (node != from && !passes(node))) continue;
      for (const auto& [next, link] : edges[node]) {
        const double then = at + 1 / kind.links[static_cast<std::size_t>(link) / 2].bandwidth;
        if (cost[next] >= 0 && cost[next] <= then) continue;
        cost[next] = then;
        by[next] = link;
        open.emplace(then, next);
      }
    }
    std::vector<Hop> hops;
    if (cost[to] < 0) return hops;
    for (std::size_t node = to; node != from;) {
      const PartLink& link = kind.links[static_cast<std::size_t>(by[node]) / 2];
      hops.push_back({by[node], link.latency_s});
      node = node_of(kind, by[node] % 2 == 0 ? link.a : link.b);
    }
    std::reverse(hops.begin(), hops.end());
    return hops;
  }

  const HostKind& kind;
  std::size_t nodes = 0;
  std::vector<std::vector<std::pair<std::size_t, std::int32_t>>> edges;  // of a node: to, link
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Hop>> found;
};

Network::Network(const Machine& machine, const Placement& placement, const NetworkOptions& options)
    : machine_(machine), placement_(placement), options_(options) {
  host_factor_.assign(static_cast<std::size_t>(machine_.hosts), 1.0);
  for (const HostKind& kind : machine_.kinds) {
    paths_.push_back(std::make_shared<HostPaths>(kind));
    most_links_ = std::max(most_links_, static_cast<std::int32_t>(kind.links.size()));
  }
}

Result<std::unique_ptr<Network>> Network::of(const Machine& machine, const Placement& placement,
                                             const NetworkOptions& options) {
  for (std::size_t rank = 0; rank < placement.ranks.size(); ++rank)
    if (placement.ranks[rank].host < 0 || placement.ranks[rank].host >= machine.hosts)
      return fail(Code::invalid_argument,
                  fmt::format("rank {} is placed on host {}, which is not in 0..{} of {}", rank,
                              placement.ranks[rank].host, machine.hosts - 1, machine.name));
  std::unique_ptr<Network> made = simulation::make_fabric(machine, placement, options);
  if (Status applied = made->apply_faults(); !applied) return tl::unexpected<Error>(applied.error());
  return made;
}

void Network::add_hosts(std::int32_t nics_a_host) {
  nics_ = std::max(1, nics_a_host);
  engines_a_rank_ = nics_;
  const NetworkModel& model = machine_.model;
  for (std::int32_t host = 0; host < machine_.hosts; ++host)
    for (std::int32_t nic = 0; nic < nics_; ++nic) {
      add(nic_rate(host, nic) * model.link_efficiency);
      add(nic_rate(host, nic) * model.link_efficiency);
    }
  first_injection_ = links();
  for (std::int32_t host = 0; host < machine_.hosts; ++host) {
    const double rate = injection_rate(host) * model.injection_efficiency;
    add(rate);
    add(rate);
  }
  first_rank_ = links();
  for (std::int32_t i = 0; i < 2 * ranks(); ++i) add(model.inside_bandwidth);
  first_inside_ = links();
  for (std::int32_t host = 0; host < machine_.hosts && most_links_ > 0; ++host) {
    const HostKind& kind = machine_.host(host);
    for (std::int32_t l = 0; l < most_links_; ++l)
      for (int way = 0; way < 2; ++way)
        add(static_cast<std::size_t>(l) < kind.links.size()
                ? kind.links[static_cast<std::size_t>(l)].bandwidth
                : 0);
  }
  first_fabric_ = links();
}

std::uint64_t Network::hashed(std::uint64_t a, std::uint64_t b, std::uint64_t c) const {
  std::uint64_t x = options_.seed;
  for (const std::uint64_t word : {a, b, c}) {  // splitmix64
    x += word + 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
  }
  return x;
}

std::int32_t Network::engine(std::int32_t rank, std::int32_t lane) const {
  return rank * engines_a_rank_ + nic_of(rank, lane);
}

double Network::rank_speed(std::int32_t rank) const {
  return host_factor_[static_cast<std::size_t>(placement_.ranks[static_cast<std::size_t>(rank)].host)];
}

double Network::host_rate(std::int32_t host) const {
  double engines = 0;
  for (std::int32_t nic = 0; nic < nics_; ++nic) engines += capacity(nic_out(host, nic));
  const double injection = capacity(first_injection_ + host * 2);
  return injection > 0 ? std::min(engines, injection) : engines;
}

double Network::rank_rate(std::int32_t rank) const {
  const std::int32_t host = placement_.ranks[static_cast<std::size_t>(rank)].host;
  double rate = 0;
  std::vector<bool> seen(static_cast<std::size_t>(nics_));
  for (std::int32_t lane = 0; lane < nics_; ++lane) {
    const std::int32_t nic = nic_of(rank, lane);
    if (!seen[static_cast<std::size_t>(nic)]) rate += capacity(nic_out(host, nic));
    seen[static_cast<std::size_t>(nic)] = true;
  }
  return std::min(rate, host_rate(host));
}

Part Network::part_of(const Place& place) const {
  if (place.gpu >= 0) return {Part::Kind::gpu, place.gpu};
  return {Part::Kind::numa, std::max(0, place.numa)};
}

void Network::host_path(std::int32_t host, Part from, Part to, Route* route) const {
  const std::size_t kind =
      machine_.kind_of_host.empty()
          ? 0
          : static_cast<std::size_t>(machine_.kind_of_host[static_cast<std::size_t>(host)]);
  for (const HostPaths::Hop& hop : paths_[kind]->path(from, to)) {
    route->links.push_back(first_inside_ + host * most_links_ * 2 + hop.link);
    route->latency_s += hop.latency_s;
  }
}

void Network::nic_path(const Place& place, std::int32_t nic, End end, Route* route) const {
  const bool leaves = end == End::sender;
  const HostKind& kind = machine_.host(place.host);
  const Part part{Part::Kind::nic, nic};
  const bool known = !kind.links.empty() && static_cast<std::size_t>(nic) < kind.nics.size();
  // An injection limit that the engines cannot reach is left out: it would cost time and change nothing.
  const std::int32_t injection = first_injection_ + place.host * 2;
  if (known && leaves) host_path(place.host, part_of(place), part, route);
  if (leaves) route->links.push_back(nic_out(place.host, nic));
  if (capacity(injection) > 0) route->links.push_back(injection + (leaves ? 0 : 1));
  if (!leaves) route->links.push_back(nic_out(place.host, nic) + 1);
  if (known && !leaves) host_path(place.host, part, part_of(place), route);
}

bool Network::inside_route(const Place& from, const Place& to, std::int32_t source,
                           std::int32_t destination, Route* route) const {
  route->inside = true;
  route->latency_s = machine_.model.inside_startup_s;
  host_path(from.host, part_of(from), part_of(to), route);
  if (route->links.empty()) {
    route->links.push_back(first_rank_ + source * 2);
    route->links.push_back(first_rank_ + destination * 2 + 1);
  }
  return std::all_of(route->links.begin(), route->links.end(),
                     [&](std::int32_t link) { return capacity(link) > 0; });
}

Status Network::route(const Ends& ends, Route* route) const {
  const auto [source, destination, lane, receiver_lane] = ends;
  const Place& from = placement_.ranks[static_cast<std::size_t>(source)];
  const Place& to = placement_.ranks[static_cast<std::size_t>(destination)];
  const auto clear = [&] { *route = {}; };
  clear();
  if (from.host == to.host) {
    if (inside_route(from, to, source, destination, route)) return {};
    return fail(Code::invalid_argument,
                fmt::format("no way from rank {} to rank {} inside host {}: {} is broken", source,
                            destination, from.host, link_name(route->links[0])));
  }
  for (int attempt = 0; attempt < (has_broken_ ? kAttempts : 1); ++attempt) {
    Way way{.from = from,
            .to = to,
            .from_nic = nic_of(source, lane),
            .to_nic = nic_of(destination, receiver_lane),
            .lane = lane,
            .attempt = attempt};
    Route fabric;
    if (!fabric_route(&way, &fabric)) break;
    clear();
    route->latency_s = machine_.model.startup_s + fabric.latency_s;
    route->hops = fabric.hops;
    nic_path(from, way.from_nic, End::sender, route);
    route->links.insert(route->links.end(), fabric.links.begin(), fabric.links.end());
    nic_path(to, way.to_nic, End::receiver, route);
    if (std::all_of(route->links.begin(), route->links.end(),
                    [&](std::int32_t link) { return capacity(link) > 0; }))
      return {};
  }
  return fail(
      Code::invalid_argument,
      fmt::format(
          "no way from rank {} (host {}) to rank {} (host {}): every route that is tried has a broken link",
          source, from.host, destination, to.host));
}

Network::LinkKind Network::kind(std::int32_t link) const {
  if (link < first_injection_) return LinkKind::engine;
  if (link < first_rank_) return LinkKind::injection;
  return link < first_fabric_ ? LinkKind::inside : LinkKind::fabric;
}

std::string Network::link_name(std::int32_t link) const {
  const auto way = [](std::int32_t n) { return n % 2 == 0 ? "out" : "in"; };
  if (link < first_injection_) {
    const char* what = machine_.torus() != nullptr ? "engine" : "nic";
    return fmt::format("{} {} of host {}, {}", what, link / 2 % nics_, link / 2 / nics_, way(link));
  }
  if (link < first_rank_)
    return fmt::format("injection of host {}, {}", (link - first_injection_) / 2,
                       way(link - first_injection_));
  if (link < first_inside_)
    return fmt::format("memory of rank {}, {}", (link - first_rank_) / 2, way(link - first_rank_));
  if (link >= first_fabric_) return fabric_link_name(link);
  const std::int32_t at = link - first_inside_, host = at / (most_links_ * 2);
  const PartLink& part = machine_.host(host).links[static_cast<std::size_t>(at / 2 % most_links_)];
  const auto name = [](Part p) {
    static constexpr const char* kNames[] = {"numa", "gpu", "nic", "hub"};
    return fmt::format("{} {}", kNames[static_cast<int>(p.kind)], p.index);
  };
  return fmt::format("{} to {} of host {}", name(at % 2 == 0 ? part.a : part.b),
                     name(at % 2 == 0 ? part.b : part.a), host);
}

Status Network::apply_faults() {
  std::map<std::string, std::int32_t> names;
  for (const Fault& fault : options_.faults) {
    if (!(fault.factor >= 0 && fault.factor <= 1))
      return fail(Code::invalid_argument,
                  fmt::format("a fault's factor is {}, must be 0..1", fault.factor));
    if (fault.kind == Fault::Kind::host) {
      if (fault.host < 0 || fault.host >= machine_.hosts)
        return fail(Code::invalid_argument, fmt::format("a fault names host {}, which is not in 0..{}",
                                                        fault.host, machine_.hosts - 1));
      if (fault.factor == 0)
        return fail(
            Code::invalid_argument,
            fmt::format("host {} is said to be broken; a collective has no result then", fault.host));
      for (std::int32_t nic = 0; nic < nics_; ++nic)
        for (int way = 0; way < 2; ++way)
          capacity_[static_cast<std::size_t>(nic_out(fault.host, nic) + way)] *= fault.factor;
      for (int way = 0; way < 2; ++way)
        capacity_[static_cast<std::size_t>(first_injection_ + fault.host * 2 + way)] *= fault.factor;
      host_factor_[static_cast<std::size_t>(fault.host)] *= fault.factor;
      continue;
    }
    if (names.empty())
      for (std::int32_t link = 0; link < links(); ++link) names.emplace(link_name(link), link);
    const auto found = names.find(fault.link);
    if (found == names.end())
      return fail(Code::invalid_argument,
                  fmt::format("no link of {} is named \"{}\"; names are like \"{}\" and \"{}\"",
                              machine_.name, fault.link, link_name(0), link_name(links() - 1)));
    capacity_[static_cast<std::size_t>(found->second)] *= fault.factor;
    has_broken_ = has_broken_ || fault.factor == 0;
  }
  return {};
}

}  // namespace tamaki
