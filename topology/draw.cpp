#include "topology/draw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/xml.hpp"
#include "topology/parse/description.hpp"
#include "topology/placement/files.hpp"
#include "topology/svg.hpp"

namespace tamaki {
namespace {

constexpr const char* kIdle = "#e8e8e8";
constexpr const char* kWire = "#9aa5b1";

/// Ranks by host, and a colour for each host: that of its first rank.
class Ranks {
 public:
  Ranks(const Machine& machine, const MachinePicture& picture)
      : of_host_(static_cast<std::size_t>(machine.hosts)), picture_(picture) {
    for (std::int32_t rank = 0; rank < picture.placement.size(); ++rank)
      of_host_[static_cast<std::size_t>(picture.placement.ranks[static_cast<std::size_t>(rank)].host)]
          .push_back(rank);
  }
  const std::vector<std::int32_t>& at(std::int32_t host) const {
    return of_host_[static_cast<std::size_t>(host)];
  }
  std::string colour(std::int32_t host) const {
    if (at(host).empty()) return kIdle;
    const auto rank = static_cast<std::size_t>(at(host).front());
    return svg_colour(rank < picture_.colour_of_rank.size() ? picture_.colour_of_rank[rank] : 0);
  }
  /// "3", "0-7", "0,4,8 ...", at most `room` characters.
  std::string text(std::int32_t host, std::size_t room) const {
    const std::vector<std::int32_t>& ranks = at(host);
    if (ranks.empty()) return {};
    const bool run = ranks.back() - ranks.front() + 1 == static_cast<std::int32_t>(ranks.size());
    std::string all = ranks.size() == 1 ? fmt::format("{}", ranks[0])
                      : run             ? fmt::format("{}-{}", ranks.front(), ranks.back())
                                        : fmt::format("{}", fmt::join(ranks, ","));
    return all.size() <= room ? all : std::string();
  }
  std::string title(const Machine& machine, std::int32_t host) const {
    std::string text =
        "host " + (machine.host_names.empty() ? fmt::format("{}", host) : host_name(machine, host));
    if (const Torus* torus = machine.torus()) {
      text += fmt::format(" at ({})", fmt::join(torus->logical_coordinates(host), ","));
      if (!torus->logical.empty())
        text += fmt::format(", physical ({})", fmt::join(torus->coordinates(host), ","));
    }
    if (!at(host).empty())
      text += fmt::format(": rank{} {}", at(host).size() == 1 ? "" : "s", fmt::join(at(host), ","));
    return text;
  }

 private:
  std::vector<std::vector<std::int32_t>> of_host_;
  const MachinePicture& picture_;
};

// ---- torus
// -----------------------------------------------------------------------------------------------

/// Planes of the last two dimensions beside each other, one for each combination of the others.
double draw_torus(Svg* svg, const Machine& machine, const Ranks& ranks, double top) {
  const Torus& torus = *machine.torus();
  std::vector<TorusAxis> dimensions = torus.dimensions();
  while (dimensions.size() < 2) dimensions.insert(dimensions.begin(), TorusAxis{"", 1, false});
  const TorusAxis across = dimensions.back(), down = dimensions[dimensions.size() - 2];
  const std::int32_t planes = machine.hosts / (across.size * down.size);
  const bool each = machine.hosts <= kMostDrawnHosts;
  const double cell = machine.hosts <= 256 ? 34 : machine.hosts <= 2'048 ? 18 : 6;
  const double gap = std::max(10.0, cell / 2), label = 16;
  const double width = across.size * cell, height = down.size * cell;
  const auto in_row = std::max(
      1, static_cast<std::int32_t>(std::sqrt(planes * 1.6 * (height + gap + label) / (width + gap))));
  for (std::int32_t p = 0; p < planes; ++p) {
    const double left = 20 + (p % in_row) * (width + gap),
                 y = top + (p / in_row) * (height + gap + label) + label;
    if (planes > 1) {
      const std::vector<std::int32_t> at =
          torus.logical_coordinates(static_cast<std::int64_t>(p) * across.size * down.size);
      std::string name;
      for (std::size_t d = 0; d + 2 < dimensions.size(); ++d)
        name += fmt::format("{}{}{}", name.empty() ? "" : " ",
                            dimensions[d].name.empty() ? fmt::format("dim {}: ", d) : dimensions[d].name,
                            at[d]);
      svg->text(left, y - 4, 10, name);
    }
    for (std::int32_t i = 0; i < down.size; ++i) {
      const std::int32_t first = (p * down.size + i) * across.size;
      if (!each) {
        svg->box(left, y + i * cell + 1, width, cell - 2, ranks.colour(first),
                 fmt::format("hosts {}-{}", first, first + across.size - 1));
        continue;
      }
      for (std::int32_t j = 0; j < across.size; ++j) {
        const std::int32_t host = first + j;
        svg->box(left + j * cell + cell * 0.12, y + i * cell + cell * 0.12, cell * 0.76, cell * 0.76,
                 ranks.colour(host), ranks.title(machine, host));
        if (cell >= 18)
          svg->label(left + (j + 0.5) * cell, y + (i + 0.5) * cell + cell * 0.1, cell >= 30 ? 10 : 6,
                     ranks.text(host, 5));
        if (cell < 18) continue;
        if (j + 1 < across.size)
          svg->line(left + (j + 0.88) * cell, y + (i + 0.5) * cell, left + (j + 1.12) * cell,
                    y + (i + 0.5) * cell, kWire);
        if (i + 1 < down.size)
          svg->line(left + (j + 0.5) * cell, y + (i + 0.88) * cell, left + (j + 0.5) * cell,
                    y + (i + 1.12) * cell, kWire);
      }
    }
    const auto wraps = [](const TorusAxis& axis) { return axis.wraps && axis.size > 1; };
    if (wraps(across)) svg->arc(left, y - 1, left + width, y - 1, kWire);  // the way round
    if (wraps(down)) svg->arc(left + width + 1, y, left + width + 1, y + height, kWire);
  }
  const std::int32_t rows = (planes + in_row - 1) / in_row;
  return top + rows * (height + gap + label) + label;
}

// ---- switches
// --------------------------------------------------------------------------------------------

constexpr double kHostWidth = 46, kHostHeight = 26;

double draw_host(Svg* svg, const Machine& machine, const Ranks& ranks, std::int32_t host, double x,
                 double y) {
  svg->box(x, y, kHostWidth, kHostHeight, ranks.colour(host), ranks.title(machine, host));
  svg->label(
      x + kHostWidth / 2, y + 11, 8,
      machine.host_names.empty() ? fmt::format("host {}", host) : host_name(machine, host).substr(0, 9));
  svg->label(x + kHostWidth / 2, y + 21, 8, ranks.text(host, 9));
  return x + kHostWidth / 2;
}

/// Spines above, then leaves by pod, then the pod's hosts in rows of as many as there are leaves wide.
double draw_leaf_spine(Svg* svg, const Machine& machine, const Ranks& ranks, double top) {
  const LeafSpine& f = *machine.leaf_spine();
  const std::int32_t pods = f.pods(machine.hosts), leaves = f.leaves(machine.hosts),
                     per_pod = leaves / pods;
  const double leaf_width = 40, leaf_gap = 8, pod_gap = 26;
  const auto hosts_in_row = std::max<std::int32_t>(
      2, static_cast<std::int32_t>(per_pod * (leaf_width + leaf_gap) / (kHostWidth + 6)));
  const double pod_width = std::max(per_pod * (leaf_width + leaf_gap), hosts_in_row * (kHostWidth + 6));
  const double width = pods * (pod_width + pod_gap);
  const double spine_y = top + 10, leaf_y = top + 110, host_y = top + 190;
  const auto spines = std::min<std::int32_t>(f.spines, 64);
  const auto spine_x = [&](std::int32_t s) { return 20 + (s + 0.5) * width / spines; };
  const auto leaf_x = [&](std::int32_t l) {
    return 20 + l / per_pod * (pod_width + pod_gap) + (l % per_pod + 0.5) * pod_width / per_pod;
  };
  if (static_cast<std::int64_t>(leaves) * spines <= kMostDrawnCables) {
    for (std::int32_t l = 0; l < leaves; ++l)
      for (std::int32_t s = 0; s < spines; ++s)
        svg->line(leaf_x(l), leaf_y, spine_x(s), spine_y + 20, "#d0d6dc");
  } else {
    svg->box(20, spine_y + 20, width - pod_gap, leaf_y - spine_y - 20, "#eef1f4",
             fmt::format("every leaf to every spine, {} each", format_rate(f.uplink_bandwidth)));
  }
  for (std::int32_t s = 0; s < spines; ++s) {
    svg->box(spine_x(s) - 18, spine_y, 36, 20, "#7f8c9b", fmt::format("spine {}", s));
    svg->label(spine_x(s), spine_y + 13, 8,
               s + 1 == spines && spines < f.spines ? fmt::format("+{}", f.spines - spines)
                                                    : fmt::format("S{}", s));
  }
  const bool each = machine.hosts <= 1'024;
  std::int32_t most_rows = 1;
  for (std::int32_t pod = 0; pod < pods; ++pod) {
    const std::int32_t first = pod * f.hosts_per_pod,
                       count = std::min(f.hosts_per_pod, machine.hosts - first);
    const double left = 20 + pod * (pod_width + pod_gap);
    const std::int32_t rows = each ? (count + hosts_in_row - 1) / hosts_in_row : 1;
    most_rows = std::max(most_rows, rows);
    svg->box(left - 4, host_y - 6, pod_width + 4, rows * (kHostHeight + 6) + 8, "#f6f7f9",
             fmt::format("pod {}: hosts {}-{}", pod, first, first + count - 1));
    for (std::int32_t i = 0; i < count && each; ++i)
      draw_host(svg, machine, ranks, first + i, left + i % hosts_in_row * (kHostWidth + 6),
                host_y + i / hosts_in_row * (kHostHeight + 6));
    if (!each) svg->label(left + pod_width / 2, host_y + 16, 10, fmt::format("{} hosts", count));
    for (std::int32_t k = 0; k < per_pod; ++k) {
      const std::int32_t l = pod * per_pod + k;
      svg->line(leaf_x(l), leaf_y + 20, leaf_x(l), host_y - 6, kWire);
      svg->box(leaf_x(l) - leaf_width / 2, leaf_y, leaf_width, 20, "#a9c1d9",
               f.rail_optimized ? fmt::format("leaf {}: rail {} of pod {}, {} to each host", l, k, pod,
                                              format_rate(f.nic_bandwidth))
                                : fmt::format("leaf {}", l));
      svg->label(leaf_x(l), leaf_y + 13, 8,
                 f.rail_optimized ? fmt::format("rail {}", k) : fmt::format("leaf {}", l));
    }
  }
  svg->reach(20 + width, 0);
  return host_y + most_rows * (kHostHeight + 6) + 20;
}

/// Hosts in rows below one switch.
double draw_crossbar(Svg* svg, const Machine& machine, const Ranks& ranks, double top) {
  if (machine.hosts == 1) return top;
  const std::int32_t shown = std::min(machine.hosts, 1'024);
  const auto in_row = std::clamp<std::int32_t>(static_cast<std::int32_t>(std::sqrt(shown * 2.5)), 1, shown);
  const double width = in_row * (kHostWidth + 10), y = top + 70;
  svg->box(20, top + 6, width - 10, 24, "#a9c1d9", "one switch, which does not block");
  svg->label(
      20 + width / 2, top + 21, 10,
      fmt::format("switch, {} a link", format_rate(std::get<Crossbar>(machine.fabric).link_bandwidth)));
  for (std::int32_t h = 0; h < shown; ++h) {
    const double x = 20 + h % in_row * (kHostWidth + 10), row = y + h / in_row * (kHostHeight + 14);
    const double middle = draw_host(svg, machine, ranks, h, x, row);
    svg->line(middle, h < in_row ? top + 30 : row - 7, middle, row, kWire);
  }
  const double end = y + (shown + in_row - 1) / in_row * (kHostHeight + 14);
  if (shown < machine.hosts)
    svg->text(20, end + 8, 11, fmt::format("and {} hosts more", machine.hosts - shown));
  return end + 20;
}

/// Switches on a line in the middle, hosts on one below; cables between.
double draw_graph(Svg* svg, const Machine& machine, const Ranks& ranks, double top) {
  const Graph& g = std::get<Graph>(machine.fabric);
  const std::int32_t hosts = std::min(machine.hosts, 512), switches = std::min(g.switches, 512);
  const double width = std::max(hosts, switches) * (kHostWidth + 10);
  const double switch_y = top + 60, host_y = top + 190;
  const auto x_of = [&](const Graph::End& end) {
    return 20 + (end.index + 0.5) * width / std::max(1, end.is_switch ? switches : hosts);
  };
  std::int32_t drawn = 0;
  for (const Graph::Cable& cable : g.cables) {
    const auto shown = [&](const Graph::End& e) { return e.index < (e.is_switch ? switches : hosts); };
    if (!shown(cable.a) || !shown(cable.b) || ++drawn > kMostDrawnCables) continue;
    const double ya = cable.a.is_switch ? switch_y + 10 : host_y,
                 yb = cable.b.is_switch ? switch_y + 10 : host_y;
    if (ya == yb)
      svg->arc(x_of(cable.a), ya - (cable.a.is_switch ? 10 : 0), x_of(cable.b),
               yb - (cable.b.is_switch ? 10 : 0), kWire);
    else
      svg->line(x_of(cable.a), ya, x_of(cable.b), yb, kWire);
  }
  for (std::int32_t s = 0; s < switches; ++s) {
    const double x = x_of({true, s, 0});
    svg->box(x - 20, switch_y, 40, 20, "#a9c1d9", fmt::format("switch {}", s));
    svg->label(x, switch_y + 13, 8, fmt::format("switch {}", s));
  }
  for (std::int32_t h = 0; h < hosts; ++h)
    draw_host(svg, machine, ranks, h, x_of({false, h, 0}) - kHostWidth / 2, host_y);
  return host_y + kHostHeight + 20;
}

// ---- a host
// ----------------------------------------------------------------------------------------------

/// NUMA domains by socket, then hubs, GPUs and NICs in rows, and the links between them.
double draw_kind(Svg* svg, const HostKind& kind, double top) {
  svg->text(20, top + 14, 12, fmt::format("host \"{}\": {}", kind.name, kind.sockets[0].model));
  const std::size_t widest =
      std::max({kind.numa.size(), kind.gpus.size(), kind.nics.size(), kind.hubs.size()});
  const double step = widest <= 16 ? 84 : 84 * 16 / static_cast<double>(widest), part = step * 0.8;
  const double width = static_cast<double>(widest) * step;
  // Rows from above: NUMA domains, hubs, GPUs, NICs; those without anything take no room.
  double row[4] = {top + 50, 0, 0, 0}, next = top + 110;
  const std::pair<Part::Kind, std::size_t> below[] = {{Part::Kind::hub, kind.hubs.size()},
                                                      {Part::Kind::gpu, kind.gpus.size()},
                                                      {Part::Kind::nic, kind.nics.size()}};
  for (const auto& [part_kind, count] : below) {
    row[static_cast<int>(part_kind)] = next + 20;
    if (count > 0) next += 76;
  }
  const auto x_of = [&](const Part& p) {
    const std::size_t sizes[] = {kind.numa.size(), kind.gpus.size(), kind.nics.size(), kind.hubs.size()};
    return 20 + (p.index + 0.5) * width / static_cast<double>(sizes[static_cast<int>(p.kind)]);
  };
  const auto y_of = [&](const Part& p) { return row[static_cast<int>(p.kind)]; };
  for (const PartLink& link : kind.links) {
    const double ya = y_of(link.a), yb = y_of(link.b);
    constexpr const char* kColours[] = {"#888888", "#9aa5b1", "#4b9e57", "#c08a3e",
                                        "#888888"};  // by PartLink::Kind
    const char* colour = kColours[static_cast<int>(link.kind)];
    if (ya == yb)
      svg->arc(x_of(link.a), ya, x_of(link.b), yb, colour);
    else
      svg->line(x_of(link.a), ya + 13, x_of(link.b), yb + 13, colour);
  }
  for (std::size_t s = 0; s < kind.sockets.size(); ++s) {
    double left = 1e9, right = 0;
    for (std::size_t n = 0; n < kind.numa.size(); ++n)
      if (kind.numa[n].socket == static_cast<std::int32_t>(s)) {
        const double x = x_of({Part::Kind::numa, static_cast<std::int32_t>(n)});
        left = std::min(left, x - part / 2);
        right = std::max(right, x + part / 2);
      }
    if (right > 0) svg->frame(left - 4, row[0] - 18, right - left + 8, 50, fmt::format("socket {}", s));
  }
  const auto draw_part = [&](Part p, const char* colour, const std::string& name,
                             const std::string& title) {
    svg->box(x_of(p) - part / 2, y_of(p), part, 26, colour, title);
    svg->label(x_of(p), y_of(p) + 16, part > 50 ? 9 : 6,
               name.substr(0, static_cast<std::size_t>(part / 4.5)));
  };
  for (std::size_t i = 0; i < kind.numa.size(); ++i)
    draw_part(
        {Part::Kind::numa, static_cast<std::int32_t>(i)}, "#f3ddb3",
        fmt::format("NUMA {} ({})", i, kind.numa[i].cores),
        fmt::format("NUMA {}: {} cores, {:.4g} GiB, {}", i, kind.numa[i].cores,
                    kind.numa[i].memory_bytes / (1 << 30), format_rate(kind.numa[i].memory_bandwidth)));
  for (std::size_t i = 0; i < kind.hubs.size(); ++i) {
    const char* name = kind.hubs[i].kind == Hub::Kind::nvswitch ? "NVSwitch" : "PCIe switch";
    draw_part({Part::Kind::hub, static_cast<std::int32_t>(i)}, "#d5dbe1", name,
              fmt::format("{} {}", name, kind.hubs[i].pci));
  }
  for (std::size_t i = 0; i < kind.gpus.size(); ++i)
    draw_part({Part::Kind::gpu, static_cast<std::int32_t>(i)}, "#bfe3c4", fmt::format("GPU {}", i),
              fmt::format("GPU {}: {} {}", i, kind.gpus[i].model, kind.gpus[i].pci));
  for (std::size_t i = 0; i < kind.nics.size(); ++i)
    draw_part({Part::Kind::nic, static_cast<std::int32_t>(i)}, "#c6d8ef",
              kind.nics[i].name.empty() ? fmt::format("NIC {}", i) : kind.nics[i].name,
              fmt::format("NIC {}: {} {}, {}, rail {}", i, kind.nics[i].name, kind.nics[i].pci,
                          format_rate(kind.nics[i].bandwidth), kind.nics[i].rail));
  svg->reach(20 + width, 0);
  return next;
}

}  // namespace

std::string draw_machine(const Machine& machine, const MachinePicture& picture) {
  Svg svg;
  const Ranks ranks(machine, picture);
  svg.text(20, 26, 16, picture.title.empty() ? machine.name : picture.title);
  double y = 40;
  std::string summary = describe(machine);
  for (std::size_t begin = 0; begin < summary.size();) {
    const std::size_t end = summary.find('\n', begin);
    svg.text(20, y += 14, 11, summary.substr(begin, end - begin));
    begin = end + 1;
  }
  y += 16;
  if (machine.torus() != nullptr)
    y = draw_torus(&svg, machine, ranks, y);
  else if (machine.leaf_spine() != nullptr)
    y = draw_leaf_spine(&svg, machine, ranks, y);
  else if (std::holds_alternative<Graph>(machine.fabric))
    y = draw_graph(&svg, machine, ranks, y);
  else
    y = draw_crossbar(&svg, machine, ranks, y);
  for (std::size_t k = 0; k < std::min<std::size_t>(machine.kinds.size(), 4); ++k)
    y = draw_kind(&svg, machine.kinds[k], y + 10);
  svg.reach(0, y + 10);
  return svg.finish();
}

}  // namespace tamaki
