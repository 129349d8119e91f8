// Time and bus bandwidth over size, for all algorithms of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/xml.hpp"
#include "simulate/sweep.hpp"

namespace tamaki::tools {
namespace {

constexpr int kWidth = 1120, kPanelWidth = 430, kPanelHeight = 350, kTop = 92;
constexpr int kLeft[2] = {80, 620};
constexpr int kColours = 8;

// Colours that keep apart in both modes and for colour-blind readers.
constexpr const char* kStyle = R"(<style>
svg{--ground:#ffffff;--ink:#1f2430;--faint:#667085;--grid:#e4e7ec;--s0:#1769aa;--s1:#c2410c;--s2:#0f766e;--s3:#7c3aed;--s4:#a16207;--s5:#be185d;--s6:#4d7c0f;--s7:#475569}
@media (prefers-color-scheme:dark){svg{--ground:#14171f;--ink:#e6e9ef;--faint:#98a2b3;--grid:#2b303b;--s0:#5cb3f2;--s1:#fb923c;--s2:#2dd4bf;--s3:#b794f6;--s4:#facc15;--s5:#f472b6;--s6:#a3e635;--s7:#94a3b8}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.title{font-size:17px;font-weight:600}.note{fill:var(--faint)}.panel{font-size:13px;font-weight:600}
.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--faint);stroke-width:1;fill:none}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.cross{stroke:var(--faint);stroke-dasharray:2 3}
</style>
)";

/// Logarithmic, from `low` to `high` over `pixels`.
struct Axis {
  double low, high;
  int pixels;
  double at(double value) const {
    return std::log(std::max(value, low) / low) / std::log(high / low) * pixels;
  }
};

Axis decades(double low, double high, int pixels) {
  low = std::pow(10.0, std::floor(std::log10(low) + 1e-9));
  high = std::pow(10.0, std::ceil(std::log10(high) - 1e-9));
  return {low, high <= low ? low * 10 : high, pixels};
}

struct Line {
  std::string name;
  int colour = 0;
  bool dashed = false;
  std::vector<std::pair<double, double>> points;
};

std::string draw_line(const Line& line, const Axis& x, const Axis& y, const char* unit) {
  std::string path, marks;
  const std::string colour =
      line.colour < 0 ? "var(--faint)" : fmt::format("var(--s{})", line.colour % kColours);
  for (const auto& [bytes, value] : line.points) {
    const double px = x.at(bytes), py = kPanelHeight - y.at(value);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    if (line.colour >= 0)
      marks += fmt::format(
          "<circle r=\"2.6\" fill=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}, {}: {:.4g} "
          "{}</title></circle>\n",
          colour, px, py, xml_escape(line.name), short_bytes(bytes), value, unit);
  }
  if (path.empty()) return {};
  return fmt::format("<path class=\"line\" stroke=\"{}\"{} d=\"{}\"/>\n{}", colour,
                     line.dashed ? " stroke-dasharray=\"6 4\"" : "", path, marks);
}

std::string panel(int left, const char* title, const char* unit, const std::vector<Line>& lines,
                  const std::vector<Crossing>& marks) {
  std::string svg =
      fmt::format("<g transform=\"translate({},{})\">\n<text class=\"panel\" y=\"-14\">{}, {}</text>\n",
                  left, kTop, title, unit);
  double x0 = 1e300, x1 = 0, y0 = 1e300, y1 = 0;
  for (const Line& line : lines)
    for (const auto& [bytes, value] : line.points) {
      x0 = std::min(x0, bytes), x1 = std::max(x1, bytes);
      y0 = std::min(y0, value), y1 = std::max(y1, value);
    }
  if (x1 <= 0 || y1 <= 0) return svg + "<text class=\"note\" y=\"20\">no data</text>\n</g>\n";
  const Axis x{x0, x1 > x0 ? x1 : x0 * 2, kPanelWidth}, y = decades(y0, y1, kPanelHeight);
  for (double v = y.low; v <= y.high * 1.0001; v *= 10) {
    const double at = kPanelHeight - y.at(v);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"note\" "
        "text-anchor=\"end\" x=\"-8\" y=\"{:.1f}\">{:g}</text>\n",
        kPanelWidth, at, at, at + 4, v);
  }
  const int first = static_cast<int>(std::ceil(std::log2(x0) - 1e-9)),
            last = static_cast<int>(std::floor(std::log2(x.high) + 1e-9));
  const int stride = std::max(1, (last - first + 8) / 8);
  for (int k = first; k <= last; k += stride) {
    const double at = x.at(std::ldexp(1.0, k));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\"/><text class=\"note\" "
        "text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{2}\">{3}</text>\n",
        at, kPanelHeight, kPanelHeight + 18, short_bytes(std::ldexp(1.0, k)));
  }
  for (const Crossing& mark : marks)
    svg += fmt::format(
        "<line class=\"cross\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\"><title>{2} up to {3}, "
        "then {4}</title></line>"
        "<text class=\"note\" transform=\"translate({5:.1f},4) rotate(90)\">{3}</text>\n",
        x.at(mark.bytes), kPanelHeight, xml_escape(mark.below->name), short_bytes(mark.bytes),
        xml_escape(mark.above->name), x.at(mark.bytes) + 3);
  svg += fmt::format(
      "<path class=\"axis\" d=\"M0 0V{}H{}\"/>\n<text class=\"note\" text-anchor=\"middle\" x=\"{}\" "
      "y=\"{}\">bytes</text>\n",
      kPanelHeight, kPanelWidth, kPanelWidth / 2, kPanelHeight + 38);
  for (const Line& line : lines) svg += draw_line(line, x, y, unit);
  return svg + "</g>\n";
}

}  // namespace

std::string sweep_plot(const SweepOptions& options, const Sweep& sweep) {
  const Collective collective = options.algorithms.front()->collective;
  const std::int32_t ranks = options.ranks();
  std::vector<Line> bandwidth, time;
  for (std::size_t r = 0; r < sweep.rows.size(); ++r) {
    Line b{std::string(sweep.rows[r].algorithm->name),
           static_cast<int>(time.size()),
           time.size() >= kColours,
           {}};
    Line t = b;
    for (std::size_t i = 0; i < options.sizes.size(); ++i) {
      const SweepCell& cell = sweep.rows[r].cells[i];
      if (!cell.done || options.sizes[i] <= 0 || cell.simulation.seconds <= 0) continue;
      t.points.emplace_back(options.sizes[i], cell.simulation.seconds * 1e6);
      b.points.emplace_back(
          options.sizes[i],
          bus_bandwidth(collective, ranks, options.sizes[i], cell.simulation.seconds) / 1e9);
    }
    if (t.points.empty()) continue;
    time.push_back(t);
    bandwidth.push_back(b);
  }
  const std::size_t shown = time.size();
  Line bound_time{"bound", -1, true, {}}, bound_bandwidth = bound_time;
  for (std::size_t i = 0; i < options.sizes.size(); ++i)
    if (sweep.bounds[i] > 0 && options.sizes[i] > 0) {
      bound_time.points.emplace_back(options.sizes[i], sweep.bounds[i] * 1e6);
      bound_bandwidth.points.emplace_back(
          options.sizes[i], bus_bandwidth(collective, ranks, options.sizes[i], sweep.bounds[i]) / 1e9);
    }
  time.push_back(bound_time);
  bandwidth.push_back(bound_bandwidth);
  const int legend_rows = static_cast<int>(shown + 6) / 6,
            height = kTop + kPanelHeight + 60 + 20 * legend_rows + 10;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n{2}"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"var(--ground)\"/>\n",
      kWidth, height, kStyle);
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"32\">{}, {} ranks of {}, simulated</text>\n",
                     kLeft[0], name_of(collective), ranks, xml_escape(options.machine.name));
  svg +=
      fmt::format("<text class=\"note\" x=\"{}\" y=\"52\">{}; dotted: where the fastest changes</text>\n",
                  kLeft[0], xml_escape(options.structure));
  const std::vector<Crossing> marks = crossings(options, sweep);
  svg += panel(kLeft[0], "Bus bandwidth", "GB/s", bandwidth, marks);
  svg += panel(kLeft[1], "Time", "us", time, marks);
  for (std::size_t i = 0; i < time.size(); ++i) {
    const Line& line = time[i];
    const int x = kLeft[0] + static_cast<int>(i % 6) * 170,
              y = kTop + kPanelHeight + 64 + static_cast<int>(i / 6) * 20;
    const std::string colour =
        line.colour < 0 ? "var(--faint)" : fmt::format("var(--s{})", line.colour % kColours);
    svg += fmt::format(
        "<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2.5\"{}/><text "
        "x=\"{}\" y=\"{}\">{}</text>\n",
        x, x + 26, y - 4, y - 4, colour, line.dashed ? " stroke-dasharray=\"6 4\"" : "", x + 32, y,
        xml_escape(line.name));
  }
  return svg + "</svg>\n";
}

}  // namespace tamaki::tools
