#include "launch/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "arguments.hpp"

namespace tamaki::tools {

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  const std::string whole(text);
  std::int64_t total = 0;
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    more = comma != std::string_view::npos;
    text = more ? text.substr(comma + 1) : std::string_view();
    const std::string shown(part);
    if (part.empty()) return fail(Code::invalid_argument, fmt::format("host {} of \"{}\" is empty", hosts.size() + 1, whole));
    HostSlots host;
    std::string_view slots;
    if (part[0] == '[') {  // [IPv6]:slots
      const auto close = part.find(']');
      if (close == std::string_view::npos)
        return fail(Code::invalid_argument, fmt::format("host \"{}\" has no closing ]", shown));
      host.name = part.substr(1, close - 1);
      slots = part.substr(close + 1);
      if (!slots.empty() && slots[0] != ':')
        return fail(Code::invalid_argument, fmt::format("host \"{}\" is not [address] or [address]:slots", shown));
      if (!slots.empty()) slots.remove_prefix(1);
    } else if (std::count(part.begin(), part.end(), ':') > 1) {
      host.name = part;  // a bare IPv6 address
    } else {
      const auto colon = part.find(':');
      host.name = part.substr(0, colon);
      if (colon != std::string_view::npos) {
        slots = part.substr(colon + 1);
        if (slots.empty()) return fail(Code::invalid_argument, fmt::format("host \"{}\" has no number after :", shown));
      }
    }
    if (!slots.empty()) {
      const auto r = std::from_chars(slots.data(), slots.data() + slots.size(), host.slots);
      if (r.ec != std::errc{} || r.ptr != slots.data() + slots.size() || host.slots < 1 || host.slots > kMostRanks)
        return fail(Code::invalid_argument, fmt::format("host \"{}\": \"{}\" is not a number of slots in 1..{}", shown, slots, kMostRanks));
    }
    // A name that starts with '-' would be read as an option by the remote shell.
    if (host.name.empty() || host.name[0] == '-')
      return fail(Code::invalid_argument, fmt::format("\"{}\" is not host or host:slots", shown));
    if (std::any_of(host.name.begin(), host.name.end(), [](unsigned char c) { return c <= ' ' || c == 127; }))
      return fail(Code::invalid_argument, fmt::format("host \"{}\" has a blank in its name", shown));
    total += std::max(1, host.slots);
    if (total > kMostRanks) return fail(Code::invalid_argument, fmt::format("\"{}\" has more than {} slots", whole, kMostRanks));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<std::vector<HostPart>> place_ranks(const std::vector<HostSlots>& hosts, int ranks) {
  int slots = 0, open = 0;
  for (const HostSlots& host : hosts) {
    slots += host.slots;
    open += host.slots == 0;
  }
  if (ranks == 0) ranks = slots + open;
  if (ranks > slots && open == 0)
    return fail(Code::invalid_argument,
                fmt::format("{} ranks do not fit: the {} hosts have {} slots", ranks, hosts.size(), slots));
  const int shared = std::max(0, ranks - slots);
  std::vector<HostPart> parts;
  std::map<std::string, int> local;
  int next = 0, turn = 0;
  for (const HostSlots& host : hosts) {
    int here = host.slots;
    if (here == 0) {
      here = shared / open + (turn < shared % open ? 1 : 0);
      ++turn;
    }
    here = std::min(here, ranks - next);
    if (here == 0) continue;
    parts.push_back({host.name, next, here, local[host.name], 0});
    local[host.name] += here;
    next += here;
  }
  for (HostPart& part : parts) part.local_size = local[part.host];
  return parts;
}

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\'' && c != '\'') {
      word += c;
    } else if (c == '\\' && i + 1 < text.size() && (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\')) {
      word += text[++i];
      in_word = true;
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return fail(Code::invalid_argument, fmt::format("\"{}\" has an open {} quote", text, quote));
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string shell_quote(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace tamaki::tools
