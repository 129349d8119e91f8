// The load of all links in one run: a strip of squares for each kind of link.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/xml.hpp"
#include "simulate/sweep.hpp"

namespace tamaki::tools {
namespace {

constexpr int kColumns = 96, kSquare = 9, kLeft = 130;
constexpr std::size_t kMostSquares = 96 * 24;  // of a kind; more links share squares, the busiest counts

/// Name of a link without its numbers: what is alike stands together. "X+ (3,0,1)" -> "X+".
std::string kind_of(const std::string& name) {
  std::string kind;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '(') break;
    if (name[i] >= '0' && name[i] <= '9') {
      // Kinds of engines and rails are worth telling apart; hosts and leaves are not.
      const bool of_engine = kind == "engine " || kind == "nic " || kind == "axis ";
      if (!of_engine) continue;
    }
    kind += name[i];
  }
  while (!kind.empty() && kind.back() == ' ') kind.pop_back();
  const std::size_t of = kind.find(" of host");
  if (of == std::string::npos) return kind;
  const std::size_t comma = kind.find(',', of);
  return kind.substr(0, of) + (comma == std::string::npos ? "" : kind.substr(comma));
}

std::string colour_of(double share) {  // light to dark red; idle ones are grey
  if (share <= 0) return "#eceff3";
  const double s = std::min(1.0, share);
  const auto between = [&](int from, int to) { return static_cast<int>(from + (to - from) * s); };
  return fmt::format("#{:02x}{:02x}{:02x}", between(255, 140), between(232, 10), between(205, 20));
}

}  // namespace

std::string link_heatmap(const Network& network, const Simulation& simulation, const std::string& title) {
  std::map<std::string, std::vector<std::pair<std::int32_t, double>>>
      kinds;  // link, share of the time in use
  std::vector<std::string> order;
  for (std::int32_t link = 0; link < network.links(); ++link) {
    if (network.capacity(link) <= 0) continue;
    const double bytes = simulation.link_bytes[static_cast<std::size_t>(link)];
    auto& list = kinds[kind_of(network.link_name(link))];
    if (list.empty()) order.push_back(kind_of(network.link_name(link)));
    list.emplace_back(link,
                      simulation.seconds > 0 ? bytes / network.capacity(link) / simulation.seconds : 0);
  }
  std::string body;
  int y = 70;
  for (const std::string& kind : order) {
    const auto& list = kinds[kind];
    double sum = 0, most = 0;
    for (const auto& [link, share] : list) sum += share, most = std::max(most, share);
    if (most <= 0) continue;  // kinds that nobody uses say nothing
    const std::size_t each = (list.size() + kMostSquares - 1) / kMostSquares,
                      squares = (list.size() + each - 1) / each;
    body += fmt::format(
        "<text x=\"10\" y=\"{}\">{}</text><text class=\"note\" x=\"10\" y=\"{}\">{} links</text><text "
        "class=\"note\" x=\"10\" y=\"{}\">mean {:.0f} %, most {:.0f} %</text>\n",
        y + 9, xml_escape(kind), y + 22, list.size(), y + 35, 100 * sum / static_cast<double>(list.size()),
        100 * most);
    for (std::size_t i = 0; i < squares; ++i) {
      auto busiest = list[i * each];
      for (std::size_t k = i * each; k < std::min(list.size(), (i + 1) * each); ++k)
        if (list[k].second > busiest.second) busiest = list[k];
      body += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{}: {:.1f} "
          "%</title></rect>\n",
          kLeft + static_cast<int>(i % kColumns) * kSquare, y + static_cast<int>(i / kColumns) * kSquare,
          kSquare - 1, kSquare - 1, colour_of(busiest.second), xml_escape(network.link_name(busiest.first)),
          100 * busiest.second);
    }
    y += std::max(48, static_cast<int>((squares + kColumns - 1) / kColumns) * kSquare + 14);
  }
  std::string scale;
  for (int i = 0; i <= 10; ++i)
    scale += fmt::format("<rect x=\"{}\" y=\"44\" width=\"22\" height=\"10\" fill=\"{}\"/>", kLeft + i * 22,
                         colour_of(i / 10.0));
  const int width = kLeft + kColumns * kSquare + 20, height = y + 10;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n"
      "<style>text{{font:12px "
      "system-ui,sans-serif;fill:#1f2430}}.title{{font-size:16px;font-weight:600}}.note{{fill:#667085;font-"
      "size:10px}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n<text class=\"title\" x=\"10\" "
      "y=\"28\">{2}</text>\n"
      "<text class=\"note\" x=\"10\" y=\"53\">idle to always in use</text>{3}\n{4}</svg>\n",
      width, height, xml_escape(title), scale, body);
}

}  // namespace tamaki::tools
