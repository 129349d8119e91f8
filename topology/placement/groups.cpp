#include "topology/placement/groups.hpp"

#include <fmt/format.h>

#include <map>

#include "topology/placement/files.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

enum Dimension : std::size_t { kTp, kPp, kDp };

/// Places of tp, pp and dp in the order, fastest 0.
Result<std::array<std::size_t, 3>> parse_order(std::string_view order) {
  constexpr std::string_view kNames[] = {"tp", "pp", "dp"};
  std::array<std::size_t, 3> place{};
  std::string_view rest = order;
  unsigned seen = 0;
  for (std::size_t position = 0; position < 3; ++position) {
    const std::string_view name = rest.substr(0, rest.find('-'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    for (std::size_t d = 0; d < 3; ++d)
      if (name == kNames[d]) {
        place[d] = position;
        seen |= 1u << d;
      }
  }
  if (seen != 7 || !rest.empty() || order.size() != 8)
    return fail(
        Code::invalid_argument,
        fmt::format("order \"{}\": it must be tp, pp and dp from fastest to slowest, as tp-dp-pp", order));
  return place;
}

/// Rank of index (tp, pp, dp) under an order: the stride of each.
Result<std::array<std::int32_t, 3>> strides(const ParallelSizes& sizes, std::string_view order) {
  const Result<std::array<std::size_t, 3>> place = parse_order(order);
  if (!place) return tl::unexpected<Error>(place.error());
  const std::array<std::int32_t, 3> size = {sizes.tp, sizes.pp, sizes.dp};
  for (const std::int32_t s : size)
    if (s < 1 || s > kMostPlacedRanks)
      return fail(Code::invalid_argument, fmt::format("TP {} x PP {} x DP {}: sizes are 1..{}", sizes.tp,
                                                      sizes.pp, sizes.dp, kMostPlacedRanks));
  if (static_cast<double>(sizes.tp) * sizes.pp * sizes.dp > kMostPlacedRanks)
    return fail(Code::invalid_argument, fmt::format("TP {} x PP {} x DP {}: more than {} ranks", sizes.tp,
                                                    sizes.pp, sizes.dp, kMostPlacedRanks));
  std::array<std::int32_t, 3> stride{};
  std::int32_t next = 1;
  for (std::size_t position = 0; position < 3; ++position)
    for (std::size_t d = 0; d < 3; ++d)
      if ((*place)[d] == position) {
        stride[d] = next;
        next *= size[d];
      }
  return stride;
}

std::vector<std::int32_t> divisors(std::int32_t n) {
  std::vector<std::int32_t> found;
  for (std::int32_t d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

}  // namespace

Result<ParallelGroups> parallel_groups(const ParallelSizes& sizes, std::string_view order) {
  const Result<std::array<std::int32_t, 3>> stride = strides(sizes, order);
  if (!stride) return tl::unexpected<Error>(stride.error());
  const std::array<std::int32_t, 3> size = {sizes.tp, sizes.pp, sizes.dp};
  const auto along = [&](std::size_t d) {
    std::vector<std::vector<std::int32_t>> groups;
    const std::size_t a = d == 0 ? 1 : 0, b = d == 2 ? 1 : 2;
    for (std::int32_t j = 0; j < size[b]; ++j)
      for (std::int32_t i = 0; i < size[a]; ++i) {
        std::vector<std::int32_t> group;
        for (std::int32_t k = 0; k < size[d]; ++k)
          group.push_back(i * (*stride)[a] + j * (*stride)[b] + k * (*stride)[d]);
        groups.push_back(std::move(group));
      }
    return groups;
  };
  return ParallelGroups{along(kTp), along(kPp), along(kDp)};
}

Result<std::vector<ParallelBlocks>> parallel_blocks(const Machine& machine, const ParallelSizes& sizes) {
  const Torus* torus = machine.torus();
  if (torus == nullptr) return fail(Code::invalid_argument, fmt::format("{} is no torus", machine.name));
  if (sizes.ranks() != machine.hosts)
    return fail(Code::invalid_argument,
                fmt::format("TP {} x PP {} x DP {} are {} ranks; {} has {} hosts", sizes.tp, sizes.pp,
                            sizes.dp, sizes.ranks(), machine.name, machine.hosts));
  std::vector<ParallelBlocks> all = {{}};
  for (const TorusAxis& dimension : torus->dimensions()) {
    std::vector<ParallelBlocks> longer;
    for (const ParallelBlocks& blocks : all) {
      ParallelSizes left = sizes;
      for (std::size_t d = 0; d < blocks.tp.size(); ++d) {
        left.tp /= blocks.tp[d];
        left.dp /= blocks.dp[d];
        left.pp /= blocks.pp[d];
      }
      for (const std::int32_t tp : divisors(dimension.size))
        for (const std::int32_t dp : divisors(dimension.size / tp)) {
          const std::int32_t pp = dimension.size / tp / dp;
          if (left.tp % tp != 0 || left.dp % dp != 0 || left.pp % pp != 0) continue;
          ParallelBlocks next = blocks;
          next.tp.push_back(tp);
          next.dp.push_back(dp);
          next.pp.push_back(pp);
          longer.push_back(std::move(next));
        }
    }
    all = std::move(longer);
  }
  // The sizes' products agree, so what divides everywhere is used up everywhere.
  std::erase_if(all, [&](const ParallelBlocks& blocks) {
    std::int64_t tp = 1, dp = 1;
    for (std::size_t d = 0; d < blocks.tp.size(); ++d) {
      tp *= blocks.tp[d];
      dp *= blocks.dp[d];
    }
    return tp != sizes.tp || dp != sizes.dp;
  });
  return all;
}

Result<Placement> place_in_blocks(const Machine& machine, const ParallelSizes& sizes,
                                  const ParallelBlocks& blocks, std::string_view order) {
  const Result<std::array<std::int32_t, 3>> stride = strides(sizes, order);
  if (!stride) return tl::unexpected<Error>(stride.error());
  const Torus* torus = machine.torus();
  if (torus == nullptr || sizes.ranks() != machine.hosts)
    return fail(Code::invalid_argument,
                fmt::format("{} is no torus of {} hosts", machine.name, sizes.ranks()));
  const std::vector<TorusAxis> dimensions = torus->dimensions();
  std::int64_t tp = 1, dp = 1;
  const std::size_t count = dimensions.size();
  if (blocks.tp.size() != count || blocks.dp.size() != count || blocks.pp.size() != count)
    return fail(Code::invalid_argument,
                fmt::format("blocks of {} dimensions on a torus of {}", blocks.tp.size(), count));
  for (std::size_t d = 0; d < count; ++d) {
    if (static_cast<std::int64_t>(blocks.tp[d]) * blocks.dp[d] * blocks.pp[d] != dimensions[d].size)
      return fail(Code::invalid_argument,
                  fmt::format("dimension {} of size {} cut as {} x {} x {}", d, dimensions[d].size,
                              blocks.tp[d], blocks.dp[d], blocks.pp[d]));
    tp *= blocks.tp[d];
    dp *= blocks.dp[d];
  }
  if (tp != sizes.tp || dp != sizes.dp)
    return fail(Code::invalid_argument,
                fmt::format("blocks of TP {} and DP {} for TP {} and DP {}", tp, dp, sizes.tp, sizes.dp));
  Placement placement;
  placement.ranks.resize(static_cast<std::size_t>(machine.hosts));
  for (std::int32_t host = 0; host < machine.hosts; ++host) {
    const std::vector<std::int32_t> at = torus->logical_coordinates(host);
    std::int32_t t = 0, p = 0, k = 0;  // index in TP, PP, DP: mixed radix, last dimension fastest
    for (std::size_t d = 0; d < at.size(); ++d) {
      t = t * blocks.tp[d] + at[d] % blocks.tp[d];
      k = k * blocks.dp[d] + at[d] / blocks.tp[d] % blocks.dp[d];
      p = p * blocks.pp[d] + at[d] / (blocks.tp[d] * blocks.dp[d]);
    }
    placement
        .ranks[static_cast<std::size_t>(t * (*stride)[kTp] + p * (*stride)[kPp] + k * (*stride)[kDp])] =
        place_of_slot(machine, host, 0);
  }
  return placement;
}

std::string blocks_text(const ParallelBlocks& blocks) {
  return fmt::format("TP {}, DP {}, PP {}", fmt::join(blocks.tp, "x"), fmt::join(blocks.dp, "x"),
                     fmt::join(blocks.pp, "x"));
}

Result<std::string> describe_groups(const Machine& machine, const Placement& placement,
                                    const ParallelGroups& groups) {
  std::string text;
  for (const auto& [name, list] : {std::pair{"TP", &groups.tp}, {"PP", &groups.pp}, {"DP", &groups.dp}}) {
    std::map<std::string, std::size_t> kinds;
    for (const std::vector<std::int32_t>& group : *list) {
      for (const std::int32_t rank : group)
        if (rank < 0 || rank >= placement.size())
          return fail(Code::invalid_argument,
                      fmt::format("rank {} of a {} group is not among the {} placed", rank, name,
                                  placement.size()));
      ++kinds[recognize(machine, restrict_to(placement, group)).what];
    }
    text += fmt::format("{}: {} group{} of {}", name, list->size(), list->size() == 1 ? "" : "s",
                        list->empty() ? 0 : list->front().size());
    for (const auto& [what, number] : kinds)
      text += kinds.size() == 1 ? ": " + what : fmt::format("\n  {} of them: {}", number, what);
    text += "\n";
  }
  return text;
}

}  // namespace tamaki
