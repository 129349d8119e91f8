#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/options.hpp"
#include "perf/perf.hpp"

namespace tamaki::tools {
namespace {

constexpr int kWidth = 1080, kHeight = 520;
constexpr int kPanelWidth = 400, kPanelHeight = 330, kTop = 92;
constexpr int kLeft[2] = {80, 620};
constexpr std::size_t kMostSeries = 6;

// Colours that keep apart in both modes and for colour-blind readers.
constexpr const char* kStyle = R"(<style>
svg{--ground:#ffffff;--ink:#1f2430;--faint:#667085;--grid:#e4e7ec;--s0:#1769aa;--s1:#c2410c;--s2:#0f766e;--s3:#7c3aed;--s4:#a16207;--s5:#be185d}
@media (prefers-color-scheme:dark){svg{--ground:#14171f;--ink:#e6e9ef;--faint:#98a2b3;--grid:#2b303b;--s0:#5cb3f2;--s1:#fb923c;--s2:#2dd4bf;--s3:#b794f6;--s4:#facc15;--s5:#f472b6}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.title{font-size:17px;font-weight:600}.note{fill:var(--faint)}.panel{font-size:13px;font-weight:600}
.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--faint);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.range{stroke-width:1.2;opacity:.55}
</style>
)";

struct Point {
  double bytes, value, low, high;
};
struct Series {
  std::string name;
  bool dashed = false;
  std::vector<Point> bandwidth, time;
};

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else out += c;
  }
  return out;
}

std::vector<Series> series_of(const PerfOptions& options, const std::vector<Row>& rows) {
  std::vector<Series> all;
  std::map<std::string, std::size_t> number;
  for (const Row& row : rows)
    for (const bool in_place : {false, true}) {
      const Timing& t = in_place ? row.in_place : row.out_of_place;
      if (!t.measured || row.bytes == 0) continue;
      std::string name = std::string(name_of(row.type));
      if (reduces(options.kind)) name += " " + std::string(name_of(row.op));
      name += in_place ? ", in place" : ", out of place";
      auto [it, fresh] = number.emplace(name, all.size());
      if (fresh) all.push_back({name, in_place, {}, {}});
      Series& s = all[it->second];
      const auto bytes = static_cast<double>(row.bytes);
      const double factor = t.bus_gbs > 0 ? t.bus_gbs : t.algorithm_gbs;
      if (factor > 0)
        s.bandwidth.push_back({bytes, factor, factor * t.median_us / t.most_us, factor * t.median_us / t.least_us});
      s.time.push_back({bytes, t.median_us, t.least_us, t.most_us});
    }
  if (all.size() > kMostSeries) all.resize(kMostSeries);
  return all;
}

/// A logarithmic axis from `low` to `high` over `pixels`.
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
  if (high <= low) high = low * 10;
  return {low, high, pixels};
}

std::string decade_label(double value) {
  return value >= 1 && value < 1e6 ? fmt::format("{:.0f}", value) : fmt::format("{:g}", value);
}

std::string panel(int left, const std::string& title, const std::vector<Series>& all, bool bandwidth) {
  double x0 = 1e300, x1 = 0, y0 = 1e300, y1 = 0;
  for (const Series& s : all)
    for (const Point& p : bandwidth ? s.bandwidth : s.time) {
      x0 = std::min(x0, p.bytes), x1 = std::max(x1, p.bytes);
      y0 = std::min(y0, p.low), y1 = std::max(y1, p.high);
    }
  std::string svg = fmt::format("<g transform=\"translate({},{})\">\n<text class=\"panel\" y=\"-14\">{}</text>\n", left, kTop, title);
  if (x1 == 0) return svg + "<text class=\"note\" y=\"20\">no data</text>\n</g>\n";
  if (x1 <= x0) x1 = x0 * 2;
  const Axis x{x0, x1, kPanelWidth}, y = decades(y0, y1, kPanelHeight);
  for (double v = y.low; v <= y.high * 1.0001; v *= 10) {
    const double at = kPanelHeight - y.at(v);
    svg += fmt::format("<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"note\" text-anchor=\"end\" x=\"-8\" y=\"{:.1f}\">{}</text>\n",
                       kPanelWidth, at, at, at + 4, decade_label(v));
  }
  // Powers of two, at most nine labels.
  const int first = static_cast<int>(std::ceil(std::log2(x0) - 1e-9)), last = static_cast<int>(std::floor(std::log2(x1) + 1e-9));
  const int stride = std::max(1, (last - first + 8) / 8);
  for (int k = first; k <= last; k += stride) {
    const double at = x.at(std::ldexp(1.0, k));
    svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"0\" y2=\"{}\"/><text class=\"note\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>\n",
                       at, at, kPanelHeight, at, kPanelHeight + 18, format_bytes(std::uint64_t{1} << k));
  }
  svg += fmt::format("<path class=\"axis\" fill=\"none\" d=\"M0 0V{}H{}\"/>\n<text class=\"note\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">bytes</text>\n",
                     kPanelHeight, kPanelWidth, kPanelWidth / 2, kPanelHeight + 38);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<Point>& points = bandwidth ? all[i].bandwidth : all[i].time;
    std::string path, marks;
    for (const Point& p : points) {
      const double px = x.at(p.bytes), py = kPanelHeight - y.at(p.value);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
      marks += fmt::format("<line class=\"range\" stroke=\"var(--s{})\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", i, px, px,
                           kPanelHeight - y.at(p.low), kPanelHeight - y.at(p.high));
      marks += fmt::format("<circle r=\"2.6\" fill=\"var(--s{})\" cx=\"{:.1f}\" cy=\"{:.1f}\"><title>{}, {} B: {:.4g} {}</title></circle>\n", i, px, py,
                           escape(all[i].name), static_cast<std::uint64_t>(p.bytes), p.value, bandwidth ? "GB/s" : "us");
    }
    if (!path.empty())
      svg += fmt::format("<path class=\"line\" stroke=\"var(--s{})\"{} d=\"{}\"/>\n{}", i, all[i].dashed ? " stroke-dasharray=\"6 4\"" : "", path, marks);
  }
  return svg + "</g>\n";
}

}  // namespace

std::string perf_plot(const PerfOptions& options, const PerfHeader& header, const std::vector<Row>& rows) {
  const std::vector<Series> all = series_of(options, rows);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n{2}"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"var(--ground)\"/>\n",
      kWidth, kHeight, kStyle);
  std::vector<std::string> hosts = header.hosts;
  std::sort(hosts.begin(), hosts.end());
  const auto machines = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"32\">{}, {} ranks</text>\n", kLeft[0], name_of(options.kind), header.ranks);
  svg += fmt::format("<text class=\"note\" x=\"{}\" y=\"52\">{} host{}, {}, {} memory; median of {} x {} calls, bars: fastest and slowest repetition</text>\n",
                     kLeft[0], machines, machines == 1 ? "" : "s", escape(header.transports),
                     name_of(options.memory), options.repetitions, options.iterations);
  svg += panel(kLeft[0], "Bus bandwidth, GB/s", all, true);
  svg += panel(kLeft[1], "Time, us", all, false);
  int at = kLeft[0];
  for (std::size_t i = 0; i < all.size(); ++i) {
    svg += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"var(--s{})\" stroke-width=\"2.5\"{}/><text x=\"{}\" y=\"{}\">{}</text>\n",
                       at, at + 26, kHeight - 22, kHeight - 22, i, all[i].dashed ? " stroke-dasharray=\"6 4\"" : "", at + 32,
                       kHeight - 18, escape(all[i].name));
    at += 160;
  }
  return svg + "</svg>\n";
}

}  // namespace tamaki::tools
