#include "schedule/draw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "schedule/check.hpp"
#include "schedule/logical.hpp"

namespace tamaki {
namespace {

constexpr double kMessageTime = 0.6;  // in step times

// ---- what happens when
// ----------------------------------------------------------------------------------------------

struct Box {
  int rank = 0, lane = 0;
  double start = 0;
  std::string name, label, title;
  bool finish = false;
};
struct Arrow {
  int sender = 0, receiver = 0;  // boxes
};
struct Timeline {
  std::vector<Box> boxes;
  std::vector<Arrow> arrows;
  double end = 0;
  std::int64_t never_run = 0;
};

std::string label_of(const Program& p, const Extent& extent, std::int32_t width) {
  if (p.collective == Collective::barrier) return "";
  std::int64_t first = logical_chunk(p, extent.buffer, extent.chunk),
               last = logical_chunk(p, extent.buffer, extent.chunk + width - 1);
  if (p.collective == Collective::alltoall && width == 1) {
    const std::int64_t pair = first / p.chunks;
    return fmt::format("{}\u203a{}", pair / p.ranks, pair % p.ranks);  // block from > to
  }
  return first == last ? fmt::format("{}", first)
                       : fmt::format("{}\u2013{}", std::min(first, last), std::max(first, last));
}

std::string title_of(const ExpandedStep& s, const Program& p) {
  std::string text =
      fmt::format("rank {} lane {} step {}: {}\n", p.rank, s.lane, s.index, name_of(*s.step, s.sources));
  for (int k = 0; k < s.step->sources + s.step->destinations; ++k) {
    text += k == 0 ? "" : k == s.step->sources ? " \u2192 " : ", ";
    text += describe(s.sources[k], s.step->width, k < s.step->sources);
  }
  return text + (s.step->finish ? ", finish" : "");
}

Timeline simulate(std::span<const Program> programs) {
  Timeline line;
  struct LaneState {
    const Program* program;
    LaneCursor cursor;
    double free = 0;           // when its last step ended
    std::vector<double> ends;  // of each step
  };
  struct Message {
    double arrives;
    int box;
  };
  std::vector<LaneState> lanes;
  std::vector<std::size_t> first_lane;
  for (const Program& p : programs) {
    first_lane.push_back(lanes.size());
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(p.lanes.size()); ++l)
      lanes.push_back({&p, LaneCursor(p, l), 0, {}});
  }
  std::map<std::tuple<int, int, int>, std::deque<Message>> fifos;
  for (bool moved = true; moved;) {
    moved = false;
    for (LaneState& lane : lanes)
      while (!lane.cursor.done()) {
        const ExpandedStep& s = lane.cursor.current();
        const Program& p = *lane.program;
        double start = lane.free;
        bool ready = true;
        for (int d = 0; d < s.step->dependencies && ready; ++d) {
          const Dependency& need = p.dependencies[s.step->first_dependency + d];
          const std::vector<double>& ends = lanes[first_lane[p.rank] + need.lane].ends;
          ready = need.step < static_cast<std::int32_t>(ends.size());
          if (ready) start = std::max(start, ends[need.step]);
        }
        for (int k = 0; k < s.step->sources && ready; ++k) {
          if (s.sources[k].kind != Operand::Kind::peer) continue;
          const auto& fifo = fifos[{s.sources[k].peer, p.rank, s.sources[k].channel}];
          ready = !fifo.empty();
          if (ready) start = std::max(start, fifo.front().arrives);
        }
        if (!ready) break;
        const int box = static_cast<int>(line.boxes.size());
        line.boxes.push_back({p.rank, s.lane, start, name_of(*s.step, s.sources),
                              label_of(p, s.extent, s.step->width), title_of(s, p), s.step->finish});
        for (int k = 0; k < s.step->sources; ++k) {
          if (s.sources[k].kind != Operand::Kind::peer) continue;
          auto& fifo = fifos[{s.sources[k].peer, p.rank, s.sources[k].channel}];
          line.arrows.push_back({fifo.front().box, box});
          fifo.pop_front();
        }
        lane.free = start + 1;
        line.end = std::max(line.end, lane.free);
        for (int k = 0; k < s.step->destinations; ++k)
          if (s.destinations[k].kind == Operand::Kind::peer)
            fifos[{p.rank, s.destinations[k].peer, s.destinations[k].channel}].push_back(
                {lane.free + kMessageTime, box});
        lane.ends.push_back(lane.free);
        lane.cursor.advance();
        moved = true;
      }
  }
  for (LaneState& lane : lanes)
    for (; !lane.cursor.done(); lane.cursor.advance()) ++line.never_run;
  return line;
}

// ---- how it looks
// ---------------------------------------------------------------------------------------------------

struct Style {
  const char* name;
  const char* fill;
  const char* text;
};
constexpr Style kStyles[] = {
    {"send", "#3d6fa8", "#ffffff"},
    {"recv", "#3f9160", "#ffffff"},
    {"copy", "#8a8f98", "#ffffff"},
    {"copy_send", "#7fa6d6", "#10202e"},
    {"reduce", "#d9b23a", "#2b2205"},
    {"reduce_send", "#e0c76b", "#2b2205"},
    {"reduce_copy_send", "#b48f1f", "#ffffff"},
    {"recv_reduce", "#cf4a3f", "#ffffff"},
    {"recv_copy_send", "#55b0a6", "#06231f"},
    {"recv_reduce_send", "#ee9344", "#2e1703"},
    {"recv_reduce_copy_send", "#9a5bb0", "#ffffff"},
};
constexpr const char* kLaneColours[] = {"#4a5261", "#c2571a", "#1f77b4", "#2e8b57",
                                        "#a8447e", "#7a5fc0", "#96740f", "#178a94"};

const Style& style_of(const std::string& name) {
  for (const Style& s : kStyles)
    if (name == s.name) return s;
  return kStyles[2];
}
const char* colour_of(int lane) { return kLaneColours[lane % std::size(kLaneColours)]; }

std::string escape(std::string_view text) {
  std::string safe;
  for (char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n')
      safe += c;
  }
  return safe;
}

/// Opens the document: an opaque card, so that it reads the same on any background.
std::string open(double width, double height, const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
      "{0:.0f} {1:.0f}\" "
      "font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" "
      "role=\"img\">\n<title>{2}</title>\n"
      "<rect x=\"0.5\" y=\"0.5\" width=\"{3:.0f}\" height=\"{4:.0f}\" rx=\"10\" fill=\"#fcfcfd\" "
      "stroke=\"#c9ced6\"/>\n",
      width, height, escape(title), width - 1, height - 1);
}
std::string text_at(double x, double y, int size, const char* fill, std::string_view text,
                    const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y,
                     size, fill, more, escape(text));
}

std::string words_only(const std::string& title, const std::vector<std::string>& lines) {
  const double height = 70 + 18.0 * static_cast<double>(lines.size());
  std::string svg =
      open(760, height, title) + text_at(24, 36, 17, "#1c2430", title, " font-weight=\"bold\"");
  for (std::size_t i = 0; i < lines.size(); ++i)
    svg += text_at(24, 62 + 18.0 * static_cast<double>(i), 12, "#a32018", lines[i]);
  return svg + "</svg>\n";
}

class Picture {
 public:
  Picture(std::span<const Program> programs, Timeline line) : programs_(programs), line_(std::move(line)) {}

  std::string draw() {
    lay_out();
    svg_ = open(width_, height_, title());
    svg_ += "<defs>\n";
    for (int l = 0; l < std::min<int>(most_lanes_, std::size(kLaneColours)); ++l)
      svg_ += fmt::format(
          "<marker id=\"tip{0}\" viewBox=\"0 0 8 8\" refX=\"7.2\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" "
          "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0.5 0.8 7.5 4 0.5 7.2z\" "
          "fill=\"{1}\"/></marker>\n",
          l, colour_of(l));
    svg_ += "</defs>\n";
    svg_ += text_at(kLeft - 76, 34, 17, "#1c2430", title(), " font-weight=\"bold\"");
    svg_ += text_at(kLeft - 76, 54, 12, "#5b6472", subtitle());
    rows();
    for (const Arrow& arrow : line_.arrows) draw_arrow(arrow);
    for (const Box& box : line_.boxes) draw_box(box);
    legend();
    return svg_ + "</svg>\n";
  }

 private:
  static constexpr double kLeft = 100, kTop = 92, kUnit = 46, kRow = 24, kBetweenRanks = 14,
                          kBoxHeight = 18;

  std::string title() const {
    const Program& p = programs_[0];
    std::string text = fmt::format("{} {}, {} rank{}", name_of(p.collective), p.algorithm, p.ranks,
                                   p.ranks == 1 ? "" : "s");
    if (has_root(p.collective)) text += fmt::format(", root {}", p.root);
    return text;
  }
  std::string subtitle() const {
    const Program& p = programs_[0];
    std::string text;
    if (p.collective != Collective::barrier)
      text = fmt::format("{} chunk{}{}, ", p.chunks, p.chunks == 1 ? "" : "s",
                         has_blocks(p.collective) ? " a block" : "");
    text += fmt::format("{} steps, {} messages, {:.1f} units of time", line_.boxes.size(),
                        line_.arrows.size(), line_.end);
    if (line_.never_run > 0) text += fmt::format("; {} steps never run", line_.never_run);
    return text;
  }

  void lay_out() {
    double y = kTop;
    for (const Program& p : programs_) {
      rank_y_.push_back(y);
      row_y_.emplace_back(p.lanes.size(), 0);
      int rows = 0;
      for (std::size_t l = 0; l < p.lanes.size(); ++l) {
        if (expanded_steps(p, static_cast<std::int32_t>(l)) == 0) continue;
        row_y_.back()[l] = y + kRow * rows++;
        most_lanes_ = std::max(most_lanes_, static_cast<int>(l) + 1);
      }
      y += kRow * std::max(rows, 1) + kBetweenRanks;
    }
    bottom_ = y - kBetweenRanks;
    for (const Style& s : kStyles)
      for (const Box& box : line_.boxes)
        if (box.name == s.name) {
          legend_.push_back(&s);
          break;
        }
    width_ = std::max(kLeft + kUnit * line_.end + 36, 560.0);
    // The legend, in as many rows as it needs.
    double x = kLeft - 76, ly = bottom_ + 56;
    const auto next = [&](double size) {
      if (x + size > width_ - 16) x = kLeft - 76, ly += 24;
      const std::pair place{x, ly};
      x += size;
      return place;
    };
    for (const Style* s : legend_)
      legend_places_.push_back(next(40 + 7.4 * static_cast<double>(std::string_view(s->name).size())));
    finish_place_ = next(120);
    if (most_lanes_ > 1)
      for (int l = 0; l < std::min<int>(most_lanes_, std::size(kLaneColours)); ++l)
        lane_places_.push_back(next(84));
    height_ = ly + 26;
  }

  double x_of(double time) const { return kLeft + kUnit * time; }

  void rows() {
    for (std::size_t r = 0; r < programs_.size(); ++r) {
      const double top = rank_y_[r],
                   end = r + 1 < programs_.size() ? rank_y_[r + 1] - kBetweenRanks : bottom_;
      svg_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" "
          "fill=\"#eef1f5\"/>\n",
          kLeft - 6, top, x_of(line_.end) + 12 - kLeft, end - top);
      svg_ +=
          text_at(kLeft - 76, top + 16, 12, "#1c2430", fmt::format("rank {}", r), " font-weight=\"bold\"");
      if (most_lanes_ > 1)
        for (std::size_t l = 0; l < row_y_[r].size(); ++l)
          if (row_y_[r][l] > 0)
            svg_ += text_at(kLeft - 12, row_y_[r][l] + 16, 10, colour_of(static_cast<int>(l)),
                            fmt::format("{}", l), " text-anchor=\"end\"");
    }
    const int step = line_.end > 40 ? 5 : line_.end > 16 ? 2 : 1;
    for (int t = 0; t <= static_cast<int>(line_.end + 0.001); t += step) {
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#d5dae2\" "
          "stroke-dasharray=\"2 4\"/>\n",
          x_of(t), kTop - 6, bottom_ + 4);
      svg_ += text_at(x_of(t), kTop - 12, 10, "#6b7482", fmt::format("{}", t), " text-anchor=\"middle\"");
      svg_ +=
          text_at(x_of(t), bottom_ + 17, 10, "#6b7482", fmt::format("{}", t), " text-anchor=\"middle\"");
    }
  }

  double middle(const Box& box) const { return row_y_[box.rank][box.lane] + kRow / 2; }

  void draw_arrow(const Arrow& arrow) {
    const Box &from = line_.boxes[arrow.sender], &to = line_.boxes[arrow.receiver];
    const double x1 = x_of(from.start + 1) - 5, y1 = middle(from), x2 = x_of(to.start) + 1.5,
                 y2 = middle(to);
    const double bend = std::clamp((x2 - x1) * 0.55, 14.0, 46.0);
    svg_ += fmt::format(
        "<path d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"1.3\" stroke-opacity=\"0.7\" marker-end=\"url(#tip{})\"/>\n",
        x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2, colour_of(from.lane),
        from.lane % std::size(kLaneColours));
  }

  void draw_box(const Box& box) {
    const Style& style = style_of(box.name);
    const double x = x_of(box.start) + 2, y = middle(box) - kBoxHeight / 2, w = kUnit - 6;
    svg_ += fmt::format(
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3.5\" "
        "fill=\"{}\"/>",
        escape(box.title), x, y, w, kBoxHeight, style.fill);
    if (box.finish) finish_mark(x, y, w);
    if (!box.label.empty())
      svg_ += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"middle\">{}</text>",
          x + w / 2, y + 13, box.label.size() > 9 ? 8 : 11, style.text, escape(box.label));
    svg_ += "</g>\n";
  }
  void finish_mark(double x, double y, double w) {
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4.5\" fill=\"none\" "
        "stroke=\"#1c2430\" stroke-width=\"1.8\"/>",
        x - 0.2, y - 0.2, w + 0.4, kBoxHeight + 0.4);
  }

  void legend() {
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      const auto [x, y] = legend_places_[i];
      svg_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" height=\"13\" rx=\"3\" fill=\"{}\"/>\n",
                      x, y - 11, legend_[i]->fill);
      svg_ += text_at(x + 26, y, 12, "#333b47", legend_[i]->name);
    }
    if (std::any_of(line_.boxes.begin(), line_.boxes.end(), [](const Box& b) { return b.finish; })) {
      const auto [x, y] = finish_place_;
      svg_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" height=\"13\" rx=\"3\" fill=\"none\" "
          "stroke=\"#1c2430\" "
          "stroke-width=\"1.8\"/>\n",
          x, y - 11);
      svg_ += text_at(x + 26, y, 12, "#333b47", "finishes");
    }
    for (std::size_t l = 0; l < lane_places_.size(); ++l) {
      const auto [x, y] = lane_places_[l];
      svg_ += fmt::format(
          "<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"{3}\" stroke-width=\"1.6\" "
          "marker-end=\"url(#tip{4})\"/>\n",
          x, y - 4, x + 22, colour_of(static_cast<int>(l)), l);
      svg_ += text_at(x + 28, y, 12, "#333b47", fmt::format("lane {}", l));
    }
  }

  std::span<const Program> programs_;
  Timeline line_;
  std::string svg_;
  double width_ = 0, height_ = 0, bottom_ = 0;
  int most_lanes_ = 1;
  std::vector<double> rank_y_;
  std::vector<std::vector<double>> row_y_;  // of each lane that has steps
  std::vector<const Style*> legend_;
  std::vector<std::pair<double, double>> legend_places_, lane_places_;
  std::pair<double, double> finish_place_;
};

}  // namespace

std::string draw_svg(std::span<const Program> programs) {
  if (programs.empty()) return words_only("no programs", {});
  std::vector<std::string> faults;
  std::int64_t steps = 0;
  for (std::size_t r = 0; r < programs.size() && faults.size() < 8; ++r) {
    const std::vector<Finding> found = check(programs[r], 8);
    for (const Finding& finding : found) faults.push_back(text_of(finding));
    if (found.empty() && (programs[r].rank != static_cast<std::int32_t>(r) ||
                          programs[r].ranks != static_cast<std::int32_t>(programs.size())))
      faults.push_back(fmt::format("program {} of {} says that it is rank {} of {}", r, programs.size(),
                                   programs[r].rank, programs[r].ranks));
    if (found.empty())
      for (std::int32_t l = 0; l < static_cast<std::int32_t>(programs[r].lanes.size()); ++l)
        steps += expanded_steps(programs[r], l);
  }
  if (!faults.empty()) return words_only("this schedule cannot be drawn", faults);
  if (programs.size() > kMostDrawnRanks || steps > kMostDrawnSteps)
    return words_only("this schedule is too large to draw",
                      {fmt::format("{} ranks and {} steps; a picture holds {} and {}", programs.size(),
                                   steps, kMostDrawnRanks, kMostDrawnSteps)});
  return Picture(programs, simulate(programs)).draw();
}

}  // namespace tamaki
