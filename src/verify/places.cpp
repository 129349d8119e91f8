#include "verify/places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

namespace tamaki {
namespace {

constexpr int kMostRanks = 65'535;

/// Links that a point in the middle of the grid has.
int links_of(const std::vector<GridDimension>& grid) {
  int links = 0;
  for (const GridDimension& d : grid) links += d.size == 1 ? 0 : d.size == 2 ? 1 : 2;
  return std::max(links, 1);
}

std::string grid_text(const std::vector<GridDimension>& grid) {
  std::string text;
  for (const GridDimension& d : grid)
    text += fmt::format("{}{}{}", text.empty() ? "" : "x", d.size, d.wraps || d.size < 3 ? "" : "m");
  return text;
}

/// Ranks dealt to positions in another order than row-major: a fixed permutation of `ranks` numbers.
std::vector<std::int32_t> shuffled(int ranks) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  std::uint32_t state = 12345;
  for (int i = ranks - 1; i > 0; --i) {
    state = state * 1664525u + 1013904223u;
    std::swap(order[i], order[(state >> 8) % static_cast<std::uint32_t>(i + 1)]);
  }
  return order;
}

bool parse_number(std::string_view text, int* number) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), *number);
  return r.ec == std::errc{} && r.ptr == text.data() + text.size() && *number >= 1 && *number <= kMostRanks;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(at)) != std::string_view::npos; text = text.substr(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

}  // namespace

Topology hosts_of(const std::vector<int>& sizes, int numa) {
  Topology made;
  for (std::size_t host = 0; host < sizes.size(); ++host)
    for (int i = 0; i < sizes[host]; ++i) {
      made.host_of_rank.push_back(static_cast<std::int32_t>(host));
      if (numa > 0) made.numa_of_rank.push_back(i * std::min(numa, sizes[host]) / sizes[host]);
    }
  return made;
}

std::vector<NamedTopology> proof_places(int max_ranks) {
  std::vector<NamedTopology> places;
  const auto grid = [&](std::vector<GridDimension> dimensions, bool permuted = false) {
    long long ranks = 1;
    for (const GridDimension& d : dimensions) ranks *= d.size;
    if (ranks > max_ranks) return;
    std::vector<int> ports = {links_of(dimensions)};
    if (ports[0] > 1 && ranks <= 36) ports.push_back(1);
    if (ports[0] > 3 && ranks <= 24) ports.push_back(3);
    for (int k : ports) {
      NamedTopology place{fmt::format("grid {}, {} port{}{}", grid_text(dimensions), k, k == 1 ? "" : "s",
                              permuted ? ", permuted" : ""),
                  Topology::torus(dimensions, k)};
      if (permuted) place.topology.rank_at = shuffled(static_cast<int>(ranks));
      places.push_back(std::move(place));
    }
  };
  const auto torus = [&](std::initializer_list<int> sides, bool permuted = false) {
    std::vector<GridDimension> dimensions;
    for (int side : sides) dimensions.push_back({side, true});
    grid(std::move(dimensions), permuted);
  };
  for (int a = 1; a <= 9; ++a) torus({a});
  for (int a : {11, 12, 13, 16, 31, 32, 48}) torus({a});
  for (int a = 1; a <= 7; ++a)
    for (int b = 1; b <= 7; ++b) torus({a, b});
  for (int a : {1, 2, 3, 4, 5})
    for (int b : {1, 2, 3, 4})
      for (int c : {1, 2, 3, 4, 7})
        if (a * b * c <= 64) torus({a, b, c});
  torus({4, 4, 4}), torus({8, 8}), torus({8, 2, 8}), torus({5, 5, 5}), torus({6, 6, 6}), torus({8, 8, 8});
  torus({2, 2, 2, 2}), torus({3, 2, 1, 4}), torus({2, 3, 2, 3}), torus({4, 2, 3, 2, 3, 2});
  grid({{5, false}}), grid({{2, false}, {3, false}}), grid({{4, false}, {4, false}});
  grid({{4, true}, {3, false}}), grid({{3, false}, {4, true}, {2, false}}), grid({{6, false}, {5, true}});
  torus({6}, true), torus({4, 3}, true), torus({2, 3, 4}, true), torus({4, 4}, true);
  grid({{3, false}, {5, true}}, true);

  const auto hosts = [&](const std::vector<int>& sizes, int numa = 0, bool permuted = false) {
    NamedTopology place{"hosts", hosts_of(sizes, numa)};
    if (place.topology.ranks() > max_ranks) return;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      place.name += fmt::format("{}{}", i == 0 ? " " : "+", sizes[i]);
    if (numa > 0) place.name += fmt::format(", {} NUMA domains", numa);
    if (permuted) {
      // Ranks dealt to hosts in turn, as mpirun --map-by node does.
      place.name += ", permuted";
      const std::vector<std::int32_t> order = shuffled(place.topology.ranks());
      Topology& t = place.topology;
      Topology moved = t;
      std::vector<std::int32_t> number(sizes.size(), -1);
      std::int32_t next = 0;
      for (int r = 0; r < t.ranks(); ++r) {
        std::int32_t& host = number[static_cast<std::size_t>(t.host_of_rank[order[r]])];
        if (host < 0) host = next++;
        moved.host_of_rank[r] = host;
        if (!t.numa_of_rank.empty()) moved.numa_of_rank[r] = t.numa_of_rank[order[r]];
      }
      t = std::move(moved);
    }
    places.push_back(std::move(place));
  };
  for (int h = 1; h <= 5; ++h)
    for (int g : {1, 2, 3, 4, 6}) hosts(std::vector<int>(h, g));
  for (int h : {7, 8, 16}) hosts(std::vector<int>(h, 2)), hosts(std::vector<int>(h, 1));
  hosts({1, 2}), hosts({2, 1}), hosts({4, 1, 3}), hosts({3, 3, 2}), hosts({1, 1, 5}),
      hosts({7, 2, 3, 4, 1});
  hosts({2, 2, 2, 1, 2}), hosts({5, 6, 7, 8, 9}), hosts(std::vector<int>(9, 7));
  hosts({4, 4}, 2), hosts({4, 4, 4}, 2), hosts({6, 6}, 3), hosts({5, 4, 7}, 2), hosts({8, 8, 3}, 4),
      hosts({1, 8}, 2);
  hosts({8}, 2), hosts({6}, 3), hosts({9, 9, 9, 9}, 3);
  hosts({2, 2}, 0, true), hosts({3, 3, 3}, 0, true), hosts({4, 1, 3}, 0, true), hosts({4, 4, 4}, 2, true);
  hosts({5, 4, 7}, 2, true);
  for (int h : {1, 2, 3, 4, 5, 7, 8})
    for (int g : {1, 2, 3, 4, 8}) {
      if (h * g > max_ranks) continue;
      places.push_back({fmt::format("rails {}x{}", h, g), Topology::rails(h, g)});
    }
  if (max_ranks >= 12) {
    // Rails that are not the order of the ranks in their hosts.
    NamedTopology place{"rails 4x3, permuted", Topology::rails(4, 3)};
    for (int r = 0; r < 12; ++r) place.topology.rail_of_rank[r] = (r % 3 + r / 3) % 3;
    places.push_back(std::move(place));
  }
  return places;
}

Topology parse_place(const std::string& text, std::string* error) {
  error->clear();
  const auto wrong = [&](const std::string& why) {
    *error = fmt::format(
        "\"{}\" is no topology: {}; e.g. flat:8, torus:4x4x2, mesh:4x4, grid:4x4mx2:p6, "
        "hosts:4+4+2, hosts:4x2:n2, rails:4x8",
        text, why);
    return Topology{};
  };
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return wrong("has no kind and sizes");
  const std::string_view kind = parts[0];
  int option = 0;
  if (parts.size() == 3 && (parts[2].size() < 2 || !parse_number(parts[2].substr(1), &option)))
    return wrong(fmt::format("\"{}\" is neither p and a number nor n and a number", parts[2]));
  const char letter = parts.size() == 3 ? parts[2][0] : ' ';
  if (kind == "torus" || kind == "mesh" || kind == "grid") {
    if (letter != ' ' && letter != 'p') return wrong("grids have p and a number of ports");
    std::vector<GridDimension> dimensions;
    long long ranks = 1;
    for (std::string_view side : split(parts[1], 'x')) {
      GridDimension d{1, kind != "mesh"};
      if (kind == "grid" && side.ends_with('m')) d.wraps = false, side.remove_suffix(1);
      if (!parse_number(side, &d.size))
        return wrong(fmt::format("\"{}\" is no size in 1..{}", side, kMostRanks));
      if ((ranks *= d.size) > kMostRanks) return wrong(fmt::format("more than {} ranks", kMostRanks));
      dimensions.push_back(d);
    }
    const int ports = option > 0 ? option : links_of(dimensions);
    return Topology::torus(std::move(dimensions), ports);
  }
  std::vector<int> numbers;
  const bool product = parts[1].find('x') != std::string_view::npos;
  for (std::string_view number : split(parts[1], product ? 'x' : '+')) {
    numbers.push_back(0);
    if (!parse_number(number, &numbers.back()))
      return wrong(fmt::format("\"{}\" is no number in 1..{}", number, kMostRanks));
  }
  long long ranks = product ? 1 : 0;
  for (int n : numbers) ranks = product ? ranks * n : ranks + n;
  if (product && numbers.size() != 2) return wrong("is not of the form 4x2");
  if (ranks > kMostRanks) return wrong(fmt::format("more than {} ranks", kMostRanks));
  if (kind == "flat" && !product && numbers.size() == 1 && letter == ' ') return Topology::flat(numbers[0]);
  if (kind == "rails" && product && letter == ' ') return Topology::rails(numbers[0], numbers[1]);
  if (kind == "hosts" && (letter == ' ' || letter == 'n'))
    return hosts_of(product ? std::vector<int>(static_cast<std::size_t>(numbers[0]), numbers[1]) : numbers,
                    option);
  return wrong("is of no known kind, or has an option that its kind does not have");
}

}  // namespace tamaki
