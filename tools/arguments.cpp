#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace tamaki::tools {
namespace {

/// What a user would write: no exponent where the number is whole.
std::string plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:g}", value);
}

/// Fewest letters to change, add or take away to make `b` of `a`.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

}  // namespace

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const std::string range = fmt::format("{}..{}", low, high);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto r = std::from_chars(text.data(), end, value);
        if (r.ec != std::errc{} || r.ptr != end || value < low || value > high)
          return fmt::format("\"{}\" is not a whole number in {}", text, range);
        text = std::to_string(value);
        return {};
      },
      range);
}

CLI::Validator real_number(double low, double high, const char* unit) {
  const std::string range = plain(low) + ".." + plain(high);
  const std::string what = unit[0] == '\0' ? "a number" : fmt::format("a number of {}", unit);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        const char* end = text.data() + text.size();
        const auto r = std::from_chars(text.data(), end, value);
        // Not a number is in no range: the comparison has to hold, rather than its opposite to fail.
        if (r.ec == std::errc{} && r.ptr == end && value >= low && value <= high) return {};
        return fmt::format("\"{}\" is not {} in {}", text, what, range);
      },
      range);
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? std::string("\"\" is empty") : std::string(); }, "");
}

std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known) {
  std::string guess, list;
  for (const std::string& one : known) {
    list += (list.empty() ? "" : ", ") + one;
    if (distance(name, one) <= std::min<std::size_t>(2, one.size() / 3) &&
        (guess.empty() || distance(name, one) < distance(name, guess)))
      guess = one;
  }
  return fmt::format("unknown {} \"{}\"{}; there are {}", what, name,
                     guess.empty() ? "" : fmt::format(" (is {} meant?)", guess), list);
}

}  // namespace tamaki::tools
