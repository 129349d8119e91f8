// TofuD's placement of a job's three dimensions on X, Y, Z, A, B, C.
#include <fmt/format.h>

#include <array>

#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

/// A ring over `size` of the points (outer, inner) of a line of ceil(size/2) and a link of 2: out on one
/// side, back on the other. Of odd size it stays open.
LogicalAxis over_pairs(std::int32_t size) {
  LogicalAxis axis;
  const std::int32_t outer = (size + 1) / 2;
  for (std::int32_t i = 0; i < outer; ++i) axis.points.push_back({i, 0});
  for (std::int32_t i = outer; i-- > 2 * outer - size;) axis.points.push_back({i, 1});
  axis.wraps = size > 2 && size % 2 == 0;
  return axis;
}

/// A ring over `size` of the points of a line of ceil(size/3) and a ring of 3: out on inner 0, back on
/// inner 1, and the points of inner 2 that are needed let in between, two for a link outwards
/// (i,0)-(i+1,0), a last one at the turn. That is the order of the dumps for 8; for 16 they hold the same
/// points in another order.
LogicalAxis over_triples(std::int32_t size) {
  LogicalAxis axis;
  const std::int32_t outer = (size + 2) / 3;
  axis.wraps = size > 2;
  if (outer == 1) {
    const std::array<std::int32_t, 3> around = {0, 2, 1};
    for (std::int32_t i = 0; i < size; ++i)
      axis.points.push_back({0, size == 3 ? around[static_cast<std::size_t>(i)] : i});
    return axis;
  }
  const std::int32_t extra = size - 2 * outer;  // points of inner 2: those of the highest outer coordinates
  std::int32_t first = outer - extra;
  std::vector<std::vector<std::int32_t>> out;
  for (std::int32_t i = 0; i < outer; ++i) {
    axis.points.push_back({i, 0});
    if (i >= first && i + 1 < outer) {
      axis.points.push_back({i, 2});
      axis.points.push_back({i + 1, 2});
      first = i + 2;
    } else if (i >= first) {
      axis.points.push_back({i, 2});
    }
  }
  for (std::int32_t i = outer; i-- > 0;) axis.points.push_back({i, 1});
  return axis;
}

}  // namespace

Result<Torus> tofu_torus(std::span<const std::int32_t> shape, std::span<const std::int32_t> machine) {
  constexpr std::array<std::int32_t, 3> kInner = {2, 3, 2};
  constexpr std::array<const char*, 6> kNames = {"X", "Y", "Z", "A", "B", "C"};
  if (machine.size() != 3)
    return fail(Code::invalid_argument, fmt::format("{} outer axes; Tofu has three", machine.size()));
  if (shape.empty() || shape.size() > 3)
    return fail(Code::invalid_argument,
                fmt::format("a shape of {} dimensions; Tofu has three", shape.size()));
  Torus torus;
  torus.routing = Torus::Routing::tofu;
  torus.engines = 6;
  for (std::size_t d = 0; d < 6; ++d) torus.axes.push_back({kNames[d], d < 3 ? 1 : kInner[d - 3], d == 4});
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int32_t size = d < shape.size() ? shape[d] : 1, most = machine[d] * kInner[d];
    if (machine[d] < 1 || machine[d] > 1'000)
      return fail(Code::invalid_argument, fmt::format("outer axis {} of size {}", kNames[d], machine[d]));
    if (size < 1 || size > most)
      return fail(Code::invalid_argument, fmt::format("{} = {} is not in 1..{} ({} units of {})", kNames[d],
                                                      size, most, machine[d], kInner[d]));
    LogicalAxis axis = kInner[d] == 3 ? over_triples(size) : over_pairs(size);
    axis.axes = {static_cast<std::int32_t>(d), static_cast<std::int32_t>(d + 3)};
    const std::int32_t box = (size + kInner[d] - 1) / kInner[d];
    torus.axes[d].size = box;
    torus.axes[d].wraps = box == machine[d] && box > 2;
    torus.logical.push_back(std::move(axis));
  }
  return torus;
}

}  // namespace tamaki
