#include "simulate/side_by_side.hpp"

#include <fmt/format.h>

#include <utility>

#include "schedule/logical.hpp"

namespace tamaki {

Result<ProgramSource> side_by_side(std::int32_t ranks, const std::vector<std::vector<std::int32_t>>& groups,
                                   GroupProgramSource programs) {
  struct Seat {
    std::int32_t group = -1, member = -1;
  };
  if (groups.empty() || groups.front().empty())
    return fail(Code::invalid_argument, "no group of ranks is given");
  std::vector<Seat> places(static_cast<std::size_t>(ranks));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].size() != groups.front().size())
      return fail(Code::invalid_argument, fmt::format("group {} has {} ranks, group 0 has {}", g,
                                                      groups[g].size(), groups.front().size()));
    for (std::size_t m = 0; m < groups[g].size(); ++m) {
      const std::int32_t rank = groups[g][m];
      if (rank < 0 || rank >= ranks)
        return fail(Code::invalid_argument,
                    fmt::format("rank {} of group {} is not in 0..{}", rank, g, ranks - 1));
      Seat& place = places[static_cast<std::size_t>(rank)];
      if (place.group >= 0)
        return fail(Code::invalid_argument,
                    fmt::format("rank {} is in groups {} and {}", rank, place.group, g));
      place = {static_cast<std::int32_t>(g), static_cast<std::int32_t>(m)};
    }
  }
  const Program first = programs(0, 0);
  return ProgramSource([ranks, groups, places = std::move(places), programs = std::move(programs),
                        collective = first.collective, chunks = first.chunks](std::int32_t rank) {
    const Seat place = places[static_cast<std::size_t>(rank)];
    Program program;
    program.collective = collective;
    program.chunks = chunks;
    if (place.group >= 0) program = programs(place.group, place.member);
    program.ranks = ranks;
    program.rank = rank;
    program.root = 0;
    if (place.group < 0) return program;
    const std::vector<std::int32_t>& members = groups[static_cast<std::size_t>(place.group)];
    for (Operand& operand : program.operands)
      if (operand.kind == Operand::Kind::peer)
        operand.peer = members[static_cast<std::size_t>(operand.peer)];
    return program;
  });
}

double bytes_side_by_side(Collective collective, double group_bytes, std::int32_t ranks,
                          std::int32_t group_size) {
  return has_blocks(collective) ? group_bytes * ranks / group_size : group_bytes;
}

}  // namespace tamaki
