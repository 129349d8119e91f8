#include "topology/placement/files.hpp"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "topology/parse/catalogue.hpp"

namespace tamaki {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<std::int32_t> number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// What the three readers share: lines without comments, hosts by name, slots counted a host.
class PlacementReader {
 public:
  PlacementReader(const Machine& machine, std::string_view text, std::string_view file)
      : machine_(machine), text_(text), file_(file), used_(static_cast<std::size_t>(machine.hosts), 0) {
    for (std::size_t h = 0; h < machine.host_names.size(); ++h)
      by_name_.emplace(machine.host_names[h], static_cast<std::int32_t>(h));
  }

  /// The next line that holds something, or nothing at the end.
  std::optional<std::string_view> next() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      std::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
      if (line = trimmed(line.substr(0, line.find('#'))); !line.empty()) return line;
    }
    return std::nullopt;
  }

  template <class... Args>
  tl::unexpected<Error> wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: {}", file_, line_, fmt::format(format, std::forward<Args>(args)...)));
  }

  Result<std::int32_t> host_named(std::string_view name) const {
    if (const auto at = by_name_.find(name); at != by_name_.end()) return at->second;
    std::optional<std::int32_t> host;
    if (name.starts_with("+n")) host = number(name.substr(2));
    if (machine_.host_names.empty() && name.starts_with("host")) host = number(name.substr(4));
    if (!host) return wrong("there is no host \"{}\" in {}", name.substr(0, 100), machine_.name);
    if (*host >= machine_.hosts) return wrong("host {} is not in 0..{}", *host, machine_.hosts - 1);
    return *host;
  }

  /// The next rank of a host.
  Result<Place> take_slot(std::int32_t host) {
    std::int32_t& used = used_[static_cast<std::size_t>(host)];
    if (++total_ > kMostPlacedRanks) return wrong("more than {} ranks", kMostPlacedRanks);
    Place place = place_of_slot(machine_, host, used);
    place.slot = used++;
    return place;
  }

  const Machine& machine() const { return machine_; }
  Result<Placement> done(Placement placement) const {
    if (placement.ranks.empty())
      return fail(Code::invalid_argument, fmt::format("{}:1: places no rank", file_));
    return placement;
  }

 private:
  const Machine& machine_;
  std::string_view text_;
  std::string file_;
  std::int32_t line_ = 0, total_ = 0;
  std::vector<std::int32_t> used_;
  std::map<std::string, std::int32_t, std::less<>> by_name_;
};

/// NUMA domain of core `core` of socket `socket` (-1: of the host), or nothing.
std::optional<std::int32_t> numa_of_core(const HostKind& kind, std::int32_t socket, std::int32_t core) {
  for (std::size_t n = 0; n < kind.numa.size(); ++n) {
    if (socket >= 0 && kind.numa[n].socket != socket) continue;
    if (core < kind.numa[n].cores) return static_cast<std::int32_t>(n);
    core -= kind.numa[n].cores;
  }
  return std::nullopt;
}

std::int32_t first_core(const HostKind& kind, std::int32_t numa) {
  std::int32_t core = 0;
  for (std::int32_t n = 0; n < numa; ++n) core += kind.numa[static_cast<std::size_t>(n)].cores;
  return core;
}

/// "1:4", "12", "0-3", "p7", "0:0-3,1:*": socket (-1: none) and first core of the first item.
bool parse_slot(std::string_view text, std::int32_t* socket, std::int32_t* core) {
  text = text.substr(0, text.find(','));
  if (text.starts_with('p')) text.remove_prefix(1);
  *socket = -1;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    const auto value = number(text.substr(0, colon));
    if (!value) return false;
    *socket = *value;
    text.remove_prefix(colon + 1);
  }
  const auto value = text == "*" ? std::optional<std::int32_t>(0) : number(text.substr(0, text.find('-')));
  if (value) *core = *value;
  return value.has_value();
}

/// Expands "node[1-3,07]*2" by calling each(name); false where it is malformed.
template <class Each>
bool expand_hosts(std::string_view item, const Each& each) {
  std::int32_t times = 1;
  if (const std::size_t star = item.rfind('*'); star != std::string_view::npos) {
    const auto value = number(item.substr(star + 1));
    if (!value || *value < 1 || *value > kMostPlacedRanks) return false;
    times = *value;
    item = item.substr(0, star);
  }
  const auto repeat = [&](const std::string& name) {
    for (std::int32_t i = 0; i < times; ++i)
      if (!each(name)) return false;
    return true;
  };
  const std::size_t open = item.find('[');
  if (open == std::string_view::npos) return repeat(std::string(item));
  const std::size_t close = item.find(']', open);
  if (close == std::string_view::npos || item.find('[', close) != std::string_view::npos) return false;
  const std::string_view before = item.substr(0, open), after = item.substr(close + 1);
  std::string_view ranges = item.substr(open + 1, close - open - 1);
  while (!ranges.empty()) {
    const std::size_t end = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, end);
    ranges.remove_prefix(std::min(end + 1, ranges.size()));
    const std::string_view low = range.substr(0, range.find('-'));
    const auto first = number(low);
    const auto last = range.size() == low.size() ? first : number(range.substr(low.size() + 1));
    if (!first || !last || *last < *first || *last - *first >= kMostPlacedRanks) return false;
    for (std::int32_t i = *first; i <= *last; ++i)  // leading zeros are kept
      if (!repeat(fmt::format("{}{:0{}}{}", before, i, low.size(), after))) return false;
  }
  return true;
}

}  // namespace

std::string host_name(const Machine& machine, std::int32_t host) {
  return machine.host_names.empty() ? fmt::format("+n{}", host)
                                    : machine.host_names[static_cast<std::size_t>(host)];
}

// ---- Fujitsu
// ---------------------------------------------------------------------------------------------

Result<Placement> placement_from_vcoord(const Machine& machine, std::string_view text,
                                        std::string_view file) {
  PlacementReader reader(machine, text, file);
  const Torus* torus = machine.torus();
  const std::vector<TorusAxis> dimensions =
      torus != nullptr ? torus->dimensions() : std::vector<TorusAxis>{{"host", machine.hosts, false}};
  Placement placement;
  while (const auto line = reader.next()) {
    const std::size_t close = line->find(')');
    if (line->front() != '(' || close == std::string_view::npos)
      return reader.wrong("\"{}\" is no coordinate, as (0,0,0)", line->substr(0, 100));
    std::vector<std::int32_t> at;
    std::string_view list = line->substr(1, close - 1);
    while (true) {
      const std::size_t end = std::min(list.find(','), list.size());
      const auto value = number(trimmed(list.substr(0, end)));
      if (!value) return reader.wrong("\"{}\" is no coordinate, as (0,0,0)", line->substr(0, 100));
      at.push_back(*value);
      if (end == list.size()) break;
      list.remove_prefix(end + 1);
    }
    if (at.size() != dimensions.size())
      return reader.wrong("{} coordinates; the machine has {} dimensions", at.size(), dimensions.size());
    for (std::size_t d = 0; d < at.size(); ++d)
      if (at[d] >= dimensions[d].size)
        return reader.wrong(
            "coordinate {} of {} is not in 0..{}", at[d],
            dimensions[d].name.empty() ? fmt::format("dimension {}", d) : dimensions[d].name,
            dimensions[d].size - 1);
    for (std::string_view rest = trimmed(line->substr(close + 1)); !rest.empty();) {
      const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
      const std::string_view word = rest.substr(0, end);
      if (!word.starts_with("core=") && !word.starts_with("mem="))
        return reader.wrong("\"{}\" after the coordinate; there are core= and mem=", word);
      rest = trimmed(rest.substr(end));
    }
    const auto host = static_cast<std::int32_t>(torus != nullptr ? torus->host_of_logical(at) : at[0]);
    Result<Place> place = reader.take_slot(host);
    if (!place) return pass(std::move(place));
    placement.ranks.push_back(*place);
  }
  return reader.done(std::move(placement));
}

std::string placement_to_vcoord(const Machine& machine, const Placement& placement) {
  std::string text;
  for (const Place& place : placement.ranks)
    text += machine.torus() != nullptr
                ? fmt::format("({})\n", fmt::join(machine.torus()->logical_coordinates(place.host), ","))
                : fmt::format("({})\n", place.host);
  return text;
}

// ---- Open MPI
// --------------------------------------------------------------------------------------------

Result<Placement> placement_from_rankfile(const Machine& machine, std::string_view text,
                                          std::string_view file) {
  PlacementReader reader(machine, text, file);
  std::map<std::int32_t, Place> places;
  while (const auto line = reader.next()) {
    constexpr const char* kForm = "is not \"rank N=HOST slot=SOCKET:CORE\"";
    const std::size_t equals = line->find('=');
    if (!line->starts_with("rank") || equals == std::string_view::npos)
      return reader.wrong("\"{}\" {}", line->substr(0, 100), kForm);
    const auto rank = number(trimmed(line->substr(4, equals - 4)));
    if (!rank || *rank >= kMostPlacedRanks) return reader.wrong("\"{}\" {}", line->substr(0, 100), kForm);
    std::string_view rest = trimmed(line->substr(equals + 1));
    const std::string_view name = rest.substr(0, rest.find_first_of(" \t"));
    rest = trimmed(rest.substr(name.size()));
    const Result<std::int32_t> host = reader.host_named(name);
    if (!host) return tl::unexpected<Error>(host.error());
    Result<Place> place = reader.take_slot(*host);
    if (!place) return pass(std::move(place));
    std::int32_t socket = -1, core = 0;
    const std::size_t slot = rest.find('=');
    if (!rest.starts_with("slot") || slot == std::string_view::npos ||
        !parse_slot(trimmed(rest.substr(slot + 1)), &socket, &core))
      return reader.wrong("\"{}\" {}", line->substr(0, 100), kForm);
    const auto numa = numa_of_core(machine.host(*host), socket, core);
    if (!numa) return reader.wrong("host {} has no core {}", name, trimmed(rest.substr(slot + 1)));
    place->numa = *numa;
    if (!places.emplace(*rank, *place).second) return reader.wrong("rank {} is there twice", *rank);
  }
  Placement placement;
  for (const auto& [rank, place] : places) {
    if (rank != placement.size()) return reader.wrong("rank {} is missing", placement.size());
    placement.ranks.push_back(place);
  }
  return reader.done(std::move(placement));
}

std::string placement_to_rankfile(const Machine& machine, const Placement& placement) {
  std::string text;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> used;  // cores taken of (host, NUMA domain)
  for (std::int32_t rank = 0; rank < placement.size(); ++rank) {
    const Place& place = placement.ranks[static_cast<std::size_t>(rank)];
    const HostKind& kind = machine.host(place.host);
    const std::int32_t numa = std::max(place.numa, 0),
                       cores = kind.numa[static_cast<std::size_t>(numa)].cores;
    const std::int32_t core =
        first_core(kind, numa) + (cores == 0 ? 0 : used[{place.host, numa}]++ % cores);
    text += fmt::format("rank {}={} slot={}\n", rank, host_name(machine, place.host), core);
  }
  return text;
}

// ---- Slurm
// -----------------------------------------------------------------------------------------------

Result<Placement> placement_from_hostlist(const Machine& machine, std::string_view text,
                                          std::string_view file) {
  PlacementReader reader(machine, text, file);
  Placement placement;
  while (auto line = reader.next()) {
    while (!line->empty()) {
      // A comma between brackets belongs to the item.
      std::size_t end = 0;
      for (bool inside = false; end < line->size() && (inside || (*line)[end] != ','); ++end)
        inside = (*line)[end] == '[' || (inside && (*line)[end] != ']');
      const std::string_view item = trimmed(line->substr(0, end));
      line->remove_prefix(std::min(end + 1, line->size()));
      if (item.empty()) return reader.wrong("an empty item");
      std::optional<Error> error;
      const bool good = expand_hosts(item, [&](const std::string& name) {
        const Result<std::int32_t> host = reader.host_named(name);
        if (!host) error = host.error();
        if (error) return false;
        Result<Place> place = reader.take_slot(*host);
        if (!place) error = place.error();
        if (!error) placement.ranks.push_back(*place);
        return !error;
      });
      if (error) return tl::unexpected<Error>(*error);
      if (!good)
        return reader.wrong("\"{}\" is no host or list of hosts, as node[1-3]", item.substr(0, 100));
    }
  }
  return reader.done(std::move(placement));
}

std::string placement_to_hostlist(const Machine& machine, const Placement& placement) {
  std::string text;
  for (const Place& place : placement.ranks) text += host_name(machine, place.host) + "\n";
  return text;
}

Result<Placement> read_placement(const Machine& machine, const std::string& path) {
  const Result<std::string> text = read_description_file(path);
  if (!text) return tl::unexpected<Error>(text.error());
  const auto first = PlacementReader(machine, *text, path).next();
  if (!first) return fail(Code::invalid_argument, fmt::format("{}:1: places no rank", path));
  if (first->front() == '(') return placement_from_vcoord(machine, *text, path);
  if (first->starts_with("rank ")) return placement_from_rankfile(machine, *text, path);
  return placement_from_hostlist(machine, *text, path);
}

}  // namespace tamaki
