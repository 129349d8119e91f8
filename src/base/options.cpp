#include "base/options.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/log.hpp"

extern char** environ;

namespace tamaki {
namespace {

struct Row {
  std::string_view type, name, initial, range, help;
};
constexpr Row kRows[] = {
#define TAMAKI_OPTION(type, member, name, initial, range, help) {#type, name, initial, range, help},
#include "base/options.def"
#undef TAMAKI_OPTION
};

tl::unexpected<Error> wrong(const Row& row, std::string_view text) {
  return fail(Code::invalid_argument, std::string(row.name) + "=\"" + std::string(text) + "\" is not in its range " +
                                          std::string(row.range) + " (" + std::string(row.help) + ")",
              Scope::process);
}

std::pair<std::string_view, std::string_view> bounds(std::string_view range) {
  const auto dots = range.find("..");
  return {range.substr(0, dots), range.substr(dots + 2)};
}

Status parse(const Row& row, std::string_view text, std::int64_t* value) {
  const auto number = [](std::string_view t, std::int64_t* v) {
    const auto r = std::from_chars(t.data(), t.data() + t.size(), *v);
    return r.ec == std::errc{} && r.ptr == t.data() + t.size();
  };
  std::int64_t low = 0, high = 0;
  const auto [lo, hi] = bounds(row.range);
  number(lo, &low);
  number(hi, &high);
  if (!number(text, value) || *value < low || *value > high) return wrong(row, text);
  return {};
}
Status parse(const Row& row, std::string_view text, std::uint64_t* value) {
  const auto [lo, hi] = bounds(row.range);
  const auto parsed = parse_bytes(text);
  if (!parsed || *parsed < *parse_bytes(lo) || *parsed > *parse_bytes(hi)) return wrong(row, text);
  *value = *parsed;
  return {};
}
Status parse(const Row& row, std::string_view text, bool* value) {
  if (text != "0" && text != "1") return wrong(row, text);
  *value = text == "1";
  return {};
}
Status parse(const Row& row, std::string_view text, std::string* value) {
  *value = text;
  if (row.type != "choice") return {};
  std::string_view rest = row.range;
  while (true) {
    const auto bar = rest.find('|');
    if (rest.substr(0, bar) == text) return {};
    if (bar == std::string_view::npos) return wrong(row, text);
    rest.remove_prefix(bar + 1);
  }
}

std::string show(std::int64_t v) { return std::to_string(v); }
std::string show(std::uint64_t v) { return format_bytes(v); }
std::string show(bool v) { return v ? "1" : "0"; }
std::string show(const std::string& v) { return v; }

std::vector<std::string> process_environment() {
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::string_view(*entry).substr(0, 7) == "TAMAKI_") lines.emplace_back(*entry);
  return lines;
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& environment, std::vector<std::string>* unknown) {
  Options parsed;
  const auto text_of = [&](std::string_view name) -> std::optional<std::string_view> {
    for (const std::string& line : environment)
      if (line.size() > name.size() && line[name.size()] == '=' && line.compare(0, name.size(), name) == 0)
        return std::string_view(line).substr(name.size() + 1);
    return std::nullopt;
  };
  std::size_t row = 0;
#define TAMAKI_OPTION(type, member, name, initial, range, help)                                              \
  if (Status status = parse(kRows[row], text_of(name).value_or(std::string_view(initial)), &parsed.member); \
      !status)                                                                                               \
    return pass(std::move(status));                                                                          \
  ++row;
#include "base/options.def"
#undef TAMAKI_OPTION
  if (unknown != nullptr)
    for (const std::string& line : environment) {
      const std::string_view name = std::string_view(line).substr(0, line.find('='));
      bool known = false;
      for (const Row& r : kRows) known = known || r.name == name;
      if (!known) unknown->emplace_back(name);
    }
  return parsed;
}

Result<const Options*> options() {
  static const Result<Options> parsed = [] {
    std::vector<std::string> unknown;
    Result<Options> result = parse_options(process_environment(), &unknown);
    if (result) configure_log(result->log, result->log_file);
    for (const std::string& name : unknown) log(Level::warn, "unknown variable " + name + " (see `tamaki info --options`)");
    return result;
  }();
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return &*parsed;
}

std::vector<OptionFact> option_facts() {
  std::vector<OptionFact> facts;
  const Result<const Options*> current = options();
  const std::vector<std::string> environment = process_environment();
  std::size_t row = 0;
#define TAMAKI_OPTION(type, member, name, initial, range, help)                                      \
  facts.push_back({name, #type, initial, range, help, current ? show((*current)->member) : std::string(), \
                   std::getenv(name) != nullptr ? "environment" : "default"});                       \
  ++row;
#include "base/options.def"
#undef TAMAKI_OPTION
  return facts;
}

std::string environment_variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view suffix(r.ptr, static_cast<std::size_t>(text.data() + text.size() - r.ptr));
  int shift = 0;
  if (!suffix.empty()) {
    const auto at = std::string_view("KMGTPE").find(suffix[0] & ~0x20);
    shift = at == std::string_view::npos ? -1 : 10 * (static_cast<int>(at) + 1);
    suffix.remove_prefix(1);
    if (suffix == "iB" || suffix == "B") suffix = {};
  }
  if (r.ec != std::errc{} || shift < 0 || !suffix.empty() || (shift > 0 && value >> (64 - shift) != 0))
    return fail(Code::invalid_argument, "\"" + std::string(text) + "\" is not a size like 4096, 16K or 100M");
  return value << shift;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* suffixes[] = {"", "K", "M", "G", "T", "P", "E"};
  int unit = 0;
  while (unit < 6 && bytes != 0 && bytes % 1024 == 0) bytes /= 1024, ++unit;
  return std::to_string(bytes) + suffixes[unit];
}

}  // namespace tamaki
