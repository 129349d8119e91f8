#pragma once
// The few shapes that pictures of machines are made of.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/xml.hpp"

namespace tamaki {

/// Colour number n of as many as are wanted, neighbours far apart.
inline std::string svg_colour(std::int32_t n) {
  const double hue = std::fmod(205 + 137.508 * n, 360);  // the golden angle
  return fmt::format("hsl({:.0f},55%,{}%)", hue, 72 - 8 * (n / 8 % 3));
}

/// Grows a picture; coordinates in pixels, texts are escaped here.
class Svg {
 public:
  /// `title`: what the pointer shows.
  void box(double x, double y, double width, double height, std::string_view colour,
           std::string_view title) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\" "
        "fill=\"{}\"><title>{}</title></rect>\n",
        x, y, width, height, std::min(3.0, height / 6), colour, xml_escape(title));
    reach(x + width, y + height);
  }
  /// An outline with a name at its upper edge.
  void frame(double x, double y, double width, double height, std::string_view name) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"none\" "
        "stroke=\"#b08d57\"/>\n",
        x, y, width, height);
    text(x + 4, y + 11, 9, name);
    reach(x + width, y + height);
  }
  void line(double x1, double y1, double x2, double y2, std::string_view colour) {
    body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n",
                         x1, y1, x2, y2, colour);
  }
  /// A flat bow between two points of one line: above a level one, to the right of a steep one.
  void arc(double x1, double y1, double x2, double y2, std::string_view colour) {
    const bool level = std::abs(y1 - y2) < std::abs(x1 - x2);
    const double bow = 8 + 0.04 * (std::abs(x1 - x2) + std::abs(y1 - y2));
    body_ += fmt::format(
        "<path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" stroke=\"{}\"/>\n", x1, y1,
        (x1 + x2) / 2 + (level ? 0 : bow), (y1 + y2) / 2 - (level ? bow : 0), x2, y2, colour);
  }
  void text(double x, double y, int size, std::string_view content) {
    if (content.empty()) return;
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" xml:space=\"preserve\">{}</text>\n",
                    x, y, size, xml_escape(content));
    reach(x + 0.62 * size * static_cast<double>(content.size()), y);
  }
  /// Text around x.
  void label(double x, double y, int size, std::string_view content) {
    if (!content.empty())
      body_ +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"middle\">{}</text>\n",
                      x, y, size, xml_escape(content));
  }
  /// The picture holds this point.
  void reach(double x, double y) {
    width_ = std::max(width_, x + 20);
    height_ = std::max(height_, y + 10);
  }
  std::string finish() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 {:.0f} "
        "{:.0f}\" font-family=\"sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        width_, height_, width_, height_, body_);
  }

 private:
  std::string body_;
  double width_ = 200, height_ = 60;
};

}  // namespace tamaki
