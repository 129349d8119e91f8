#include "topology/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "topology/parse/description.hpp"

namespace tamaki {

// ---- torus
// -----------------------------------------------------------------------------------------------

namespace {

std::int32_t size_of(const LogicalAxis& axis) { return static_cast<std::int32_t>(axis.points.size()); }

/// Stays where it is beyond any limit, so that sizes that were not checked yet do not overflow.
std::int64_t product(std::int64_t all, std::int32_t size) { return all > kMostPoints ? all : all * size; }

template <class Sizes>
std::vector<std::int32_t> row_major(std::int64_t number, std::size_t dimensions, const Sizes& size) {
  std::vector<std::int32_t> at(dimensions);
  for (std::size_t d = dimensions; d-- > 0;) {
    at[d] = static_cast<std::int32_t>(number % size(d));
    number /= size(d);
  }
  return at;
}

template <class Sizes>
std::int64_t number_of(const std::vector<std::int32_t>& at, std::size_t dimensions, const Sizes& size) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < dimensions; ++d) number = number * size(d) + at[d];
  return number;
}

}  // namespace

std::int64_t Torus::points() const {
  std::int64_t all = 1;
  for (const TorusAxis& axis : axes) all = product(all, axis.size);
  return all;
}

std::int64_t Torus::hosts() const {
  if (logical.empty()) return points();
  std::int64_t all = 1;
  for (const LogicalAxis& axis : logical) all = product(all, size_of(axis));
  return all;
}

std::vector<TorusAxis> Torus::dimensions() const {
  if (logical.empty()) return axes;
  std::vector<TorusAxis> seen;
  for (const LogicalAxis& axis : logical)
    seen.push_back({axis.axes.empty() ? std::string() : axes[static_cast<std::size_t>(axis.axes[0])].name,
                    size_of(axis), axis.wraps});
  return seen;
}

std::vector<std::int32_t> Torus::logical_coordinates(std::int64_t host) const {
  if (logical.empty()) return point_coordinates(host);
  return row_major(host, logical.size(), [&](std::size_t d) { return size_of(logical[d]); });
}

std::int64_t Torus::host_of_logical(const std::vector<std::int32_t>& at) const {
  if (logical.empty()) return point_of(at);
  return number_of(at, logical.size(), [&](std::size_t d) { return size_of(logical[d]); });
}

std::vector<std::int32_t> Torus::coordinates(std::int64_t host) const {
  const std::vector<std::int32_t> at = logical_coordinates(host);
  if (logical.empty()) return at;
  std::vector<std::int32_t> physical(axes.size(), 0);
  for (std::size_t d = 0; d < logical.size(); ++d) {
    const std::vector<std::int32_t>& point = logical[d].points[static_cast<std::size_t>(at[d])];
    for (std::size_t i = 0; i < point.size(); ++i)
      physical[static_cast<std::size_t>(logical[d].axes[i])] = point[i];
  }
  return physical;
}

std::int64_t Torus::point_of(const std::vector<std::int32_t>& at) const {
  return number_of(at, axes.size(), [&](std::size_t d) { return axes[d].size; });
}

std::vector<std::int32_t> Torus::point_coordinates(std::int64_t point) const {
  return row_major(point, axes.size(), [&](std::size_t d) { return axes[d].size; });
}

std::vector<std::int32_t> Torus::hosts_at_points() const {
  std::vector<std::int32_t> found(static_cast<std::size_t>(points()), -1);
  for (std::int64_t host = 0; host < hosts(); ++host)
    found[static_cast<std::size_t>(point_of(coordinates(host)))] = static_cast<std::int32_t>(host);
  return found;
}

std::int32_t Torus::hops(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) const {
  std::int32_t all = 0;
  for (std::size_t d = 0; d < axes.size(); ++d) {
    const std::int32_t straight = std::abs(from[d] - to[d]);
    all += axes[d].wraps ? std::min(straight, axes[d].size - straight) : straight;
  }
  return all;
}

// ---- values
// ----------------------------------------------------------------------------------------------

std::int64_t Machine::slots() const {
  if (kind_of_host.empty()) return static_cast<std::int64_t>(hosts) * kinds[0].slots;
  std::int64_t all = 0;
  for (std::int32_t h = 0; h < hosts; ++h) all += host(h).slots;
  return all;
}

std::uint64_t hash_of(const Machine& machine) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a over the description without its notes
  for (const char byte : machine_to_json(machine, NotesIn::no))
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

Machine torus_machine(std::vector<TorusAxis> axes) {
  Machine m;
  Torus torus;
  m.name = "torus:";
  for (std::size_t d = 0; d < axes.size(); ++d)
    m.name += fmt::format("{}{}{}", d == 0 ? "" : "x", axes[d].size, axes[d].wraps ? "" : "m");
  torus.axes = std::move(axes);
  torus.engines = 0;  // a link each way in each dimension
  for (const TorusAxis& axis : torus.axes) torus.engines += axis.size == 1 ? 0 : axis.size == 2 ? 1 : 2;
  torus.engines = std::max(torus.engines, 1);
  m.hosts = static_cast<std::int32_t>(std::min<std::int64_t>(torus.hosts(), kMostPoints + 1));
  m.fabric = std::move(torus);
  return m;
}

Machine rail_machine(std::int32_t hosts, std::int32_t gpus) {
  Machine m;
  m.name = fmt::format("rails:{}x{}", hosts, gpus);
  m.hosts = hosts;
  HostKind& kind = m.kinds[0];
  kind.slots = gpus;
  LeafSpine fabric;
  fabric.nics_per_host = gpus;
  fabric.hosts_per_pod = hosts;
  fabric.spines = gpus;
  fabric.uplink_bandwidth = fabric.nic_bandwidth * hosts / fabric.spines;
  for (std::int32_t i = 0; i < gpus; ++i) {
    kind.gpus.push_back({.numa = 0});
    kind.nics.push_back({.name = fmt::format("nic{}", i),
                         .numa = 0,
                         .bandwidth = fabric.nic_bandwidth,
                         .rail = i,
                         .gpu = i});
    kind.hubs.push_back({Hub::Kind::pcie, {}});
    const Part gpu = {Part::Kind::gpu, i}, nic = {Part::Kind::nic, i}, hub = {Part::Kind::hub, i};
    kind.links.push_back({gpu, {Part::Kind::hub, gpus}, 450e9, 0, PartLink::Kind::nvlink});
    for (const Part end : {gpu, nic, Part{Part::Kind::numa, 0}})
      kind.links.push_back({end, hub, 63e9, 0, PartLink::Kind::pcie});  // generation 5 x 16
  }
  kind.hubs.push_back({Hub::Kind::nvswitch, {}});
  m.fabric = fabric;
  return m;
}

Machine switch_machine(std::int32_t hosts, std::int32_t slots) {
  Machine m;
  m.name = fmt::format("hosts:{}x{}", hosts, slots);
  m.hosts = hosts;
  m.kinds[0].slots = slots;
  m.kinds[0].nics.push_back({.name = "eth0", .numa = 0, .bandwidth = Crossbar{}.link_bandwidth, .rail = 0});
  return m;
}

}  // namespace tamaki
