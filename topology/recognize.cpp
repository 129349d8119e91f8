#include "topology/recognize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

/// 0, 1, ... in the order of first appearance.
std::vector<std::int32_t> numbered(const std::vector<std::int32_t>& values) {
  std::unordered_map<std::int32_t, std::int32_t> seen;
  std::vector<std::int32_t> numbers;
  numbers.reserve(values.size());
  for (const std::int32_t value : values)
    numbers.push_back(seen.emplace(value, static_cast<std::int32_t>(seen.size())).first->second);
  return numbers;
}

std::int32_t rail_of(const Machine& machine, const Place& place) {
  const std::vector<Nic>& nics = machine.host(place.host).nics;
  return place.nic >= 0 && static_cast<std::size_t>(place.nic) < nics.size()
             ? nics[static_cast<std::size_t>(place.nic)].rail
             : -1;
}

/// Rails of the ranks, numbered from 0 in their own order; empty where one is not known.
std::vector<std::int32_t> rails_of(const Machine& machine, const Placement& placement,
                                   std::set<std::int32_t>* rails) {
  std::vector<std::int32_t> found;
  for (const Place& place : placement.ranks) {
    found.push_back(rail_of(machine, place));
    rails->insert(found.back());
  }
  if (rails->contains(-1)) {
    rails->clear();
    return {};
  }
  std::map<std::int32_t, std::int32_t> number;
  for (const std::int32_t rail : *rails) number.emplace(rail, static_cast<std::int32_t>(number.size()));
  for (std::int32_t& rail : found) rail = number[rail];
  return found;
}

/// NUMA domains numbered from 0 within each host; empty where one is not known.
std::vector<std::int32_t> domains_of(const Placement& placement) {
  std::map<std::int32_t, std::map<std::int32_t, std::int32_t>> seen;  // host -> domain -> number
  std::vector<std::int32_t> found;
  for (const Place& place : placement.ranks) {
    if (place.numa < 0) return {};
    seen[place.host].emplace(place.numa, 0);
  }
  for (auto& [host, domains] : seen) {
    std::int32_t next = 0;
    for (auto& [domain, number] : domains) number = next++;
  }
  for (const Place& place : placement.ranks) found.push_back(seen[place.host][place.numa]);
  return found;
}

// ---- grids
// -----------------------------------------------------------------------------------------------

/// One dimension of a box: the coordinates in it that hosts have, ascending.
struct Side {
  std::vector<std::int32_t> values;
  bool wraps = false;
  bool reversed = false;
  std::int64_t stride = 0;  // of ranks, at the first point
};

/// Puts coordinates in their order on a ring: those of a run that goes over its end, as 22, 23, 0, 1 of 24,
/// start after the longest gap. True where that gap, the way from the last to the first, is no longer than
/// another one.
bool unroll(std::vector<std::int32_t>* values, const TorusAxis& axis) {
  if (!axis.wraps || values->size() < 2) return false;
  std::size_t start = 0;
  std::int32_t longest = axis.size - values->back() + values->front(), next = 0;
  for (std::size_t i = 1; i < values->size(); ++i) {
    const std::int32_t gap = (*values)[i] - (*values)[i - 1];
    next = std::max(next, std::min(gap, longest));
    if (gap <= longest) continue;
    longest = gap;
    start = i;
  }
  std::rotate(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(start), values->end());
  return values->size() > 2 && longest <= next;
}

using Points = std::vector<std::vector<std::int32_t>>;  // of each rank

/// Fills grid and rank_at where the points are a box. One point a rank, all different.
bool recognize_box(const Points& points, const std::vector<TorusAxis>& axes, Topology* topology) {
  std::vector<Side> sides(axes.size());
  for (std::size_t d = 0; d < axes.size(); ++d) {
    std::vector<std::int32_t>& values = sides[d].values;
    for (const auto& point : points) values.push_back(point[d]);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    sides[d].wraps = unroll(&values, axes[d]);
  }
  std::int64_t volume = 1;
  for (const Side& side : sides) volume *= static_cast<std::int64_t>(side.values.size());
  if (volume != static_cast<std::int64_t>(points.size()))
    return false;  // all differ, so equal means all are there

  // Position of each rank in the box with the sides as they are.
  std::vector<std::vector<std::int32_t>> index(axes.size());
  for (std::size_t d = 0; d < axes.size(); ++d) {
    index[d].assign(static_cast<std::size_t>(axes[d].size), -1);
    for (std::size_t i = 0; i < sides[d].values.size(); ++i)
      index[d][static_cast<std::size_t>(sides[d].values[i])] = static_cast<std::int32_t>(i);
  }
  const auto at = [&](std::size_t rank, std::size_t d) {
    const std::int32_t i = index[d][static_cast<std::size_t>(points[rank][d])];
    return sides[d].reversed ? static_cast<std::int32_t>(sides[d].values.size()) - 1 - i : i;
  };
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < axes.size(); ++d)
    if (sides[d].values.size() > 1) order.push_back(d);
  // Rank 0's neighbours tell in which order and direction ranks go by.
  std::vector<std::int64_t> first(axes.size(), -1);
  for (std::size_t rank = 1; rank < points.size(); ++rank) {
    std::size_t differs = axes.size(), different = 0;
    for (const std::size_t d : order)
      if (points[rank][d] != points[0][d]) {
        differs = d;
        ++different;
      }
    if (different == 1 && first[differs] < 0) first[differs] = static_cast<std::int64_t>(rank);
  }
  for (const std::size_t d : order) {
    sides[d].stride = first[d];
    sides[d].reversed = at(static_cast<std::size_t>(first[d]), d) < at(0, d);
  }
  // A ring may start anywhere: let rank 0 be at its beginning.
  for (const std::size_t d : order) {
    if (!sides[d].wraps) continue;
    const std::int32_t size = static_cast<std::int32_t>(sides[d].values.size()),
                       here = index[d][static_cast<std::size_t>(points[0][d])];
    const std::int32_t there =
        index[d][static_cast<std::size_t>(points[static_cast<std::size_t>(first[d])][d])];
    const std::int32_t shift = here;
    for (std::int32_t& i : index[d])
      if (i >= 0) i = (i - shift + size) % size;
    sides[d].reversed = (there - here + size) % size == size - 1 && size > 2;
    if (sides[d].reversed)  // mirrored, with rank 0 still first
      for (std::int32_t& i : index[d])
        if (i >= 0) i = (i + size - 1) % size;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sides[a].stride > sides[b].stride; });

  topology->grid.clear();
  for (const std::size_t d : order)
    topology->grid.push_back({static_cast<std::int32_t>(sides[d].values.size()), sides[d].wraps});
  topology->rank_at.assign(points.size(), 0);
  bool same = true;
  for (std::size_t rank = 0; rank < points.size(); ++rank) {
    std::size_t position = 0;
    for (const std::size_t d : order)
      position = position * sides[d].values.size() + static_cast<std::size_t>(at(rank, d));
    topology->rank_at[position] = static_cast<std::int32_t>(rank);
    same = same && position == rank;
  }
  if (same) topology->rank_at.clear();
  return true;
}

std::string grid_text(const Topology& topology) {
  std::string text;
  bool ring = false, line = false;
  for (const GridDimension& dimension : topology.grid) {
    text += fmt::format("{}{}", text.empty() ? "" : "x", dimension.size);
    (dimension.wraps ? ring : line) = true;
  }
  if (ring && line) {  // say which is which, as machines are named
    text.clear();
    for (const GridDimension& dimension : topology.grid)
      text += fmt::format("{}{}{}", text.empty() ? "" : "x", dimension.size, dimension.wraps ? "" : "m");
  }
  text += ring ? " torus" : " mesh";
  if (!topology.rank_at.empty()) text += ", permuted";
  return text;
}

/// Why there is no grid, or "".
std::string recognize_grid(const Machine& machine, const Placement& placement, Topology* topology) {
  const Torus& torus = *machine.torus();
  std::set<std::int32_t> hosts;
  for (const Place& place : placement.ranks)
    if (!hosts.insert(place.host).second) return "ranks share hosts";
  if (placement.size() == 1) return "one rank";
  Points logical, physical;
  for (const Place& place : placement.ranks) logical.push_back(torus.logical_coordinates(place.host));
  const std::vector<TorusAxis> dimensions = torus.dimensions();
  bool found = recognize_box(logical, dimensions, topology);
  if (!found && !torus.logical.empty()) {
    for (const Place& place : placement.ranks) physical.push_back(torus.coordinates(place.host));
    found = recognize_box(physical, torus.axes, topology);
  }
  if (!found) return fmt::format("the hosts are no box of the {} torus", shape_text(dimensions));
  std::int32_t ways = 0;
  for (const GridDimension& dimension : topology->grid) ways += dimension.size > 2 ? 2 : 1;
  topology->ports = std::max(1, std::min(torus.engines, ways));
  return {};
}

std::string ranks_text(std::int32_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

}  // namespace

Recognized recognize(const Machine& machine, const Placement& placement) {
  Recognized found;
  Topology& t = found.topology;
  std::vector<std::int32_t> hosts;
  std::map<std::int32_t, std::int32_t> ranks_of_host;
  for (const Place& place : placement.ranks) {
    hosts.push_back(place.host);
    ++ranks_of_host[place.host];
  }
  t.host_of_rank = numbered(hosts);
  t.numa_of_rank = domains_of(placement);
  std::set<std::int32_t> rails;
  if (machine.torus() == nullptr) t.rail_of_rank = rails_of(machine, placement, &rails);
  if (placement.ranks.empty()) return found;

  std::int32_t fewest = placement.size(), most = 0, fewest_nics = kMostParts;
  for (const auto& [host, ranks] : ranks_of_host) {
    fewest = std::min(fewest, ranks);
    most = std::max(most, ranks);
    fewest_nics = std::min(
        fewest_nics,
        std::max<std::int32_t>(1, static_cast<std::int32_t>(machine.host(host).nics.size()) / ranks));
  }
  t.ports = std::max(1, machine.torus() != nullptr ? machine.torus()->engines / most : fewest_nics);
  if (ranks_of_host.size() == 1) {
    const std::int32_t domains =
        t.numa_of_rank.empty() ? 1 : *std::max_element(t.numa_of_rank.begin(), t.numa_of_rank.end()) + 1;
    found.what = fmt::format("{} of one host{}", ranks_text(placement.size()),
                             domains > 1 ? fmt::format(" in {} NUMA domains", domains) : "");
    return found;
  }
  std::string reason;
  if (machine.torus() != nullptr) {
    reason = recognize_grid(machine, placement, &t);
    if (reason.empty()) {
      found.what = grid_text(t);
      return found;
    }
  }
  const auto number = ranks_of_host.size();
  if (fewest != most) {
    found.what = fmt::format("no structure: {} hosts have {} to {} ranks", number, fewest, most);
  } else if (rails.size() > 1) {
    found.what = fmt::format("{} hosts of {} on {} rails", number, ranks_text(most), rails.size());
  } else if (rails.size() == 1 && most == 1 && machine.leaf_spine() != nullptr &&
             machine.leaf_spine()->rail_optimized) {
    found.what = fmt::format("{} of rail {}", ranks_text(placement.size()), *rails.begin());
  } else {
    found.what = fmt::format("{} hosts of {}", number, ranks_text(most));
  }
  if (!reason.empty()) found.what += fmt::format("; no grid: {}", reason);
  return found;
}

}  // namespace tamaki
