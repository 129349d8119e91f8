// allgather/torus_ranges.cpp backwards: the slowest dimension first, both ways. What a rank has after a
// dimension is one range of blocks, kept in scratch from its first on.
#include <optional>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus.hpp"
#include "algorithms/shapes/two_way_line.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_row_major_grid(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const int dimensions = grid.dimensions();
  const int kept = dimensions > 0 ? grid.stride(0) : 1;
  Builder b({.algorithm = "torus_ranges",
             .collective = Collective::reduce_scatter,
             .ranks = problem.ranks,
             .rank = rank,
             .scratch_chunks = dimensions > 0 ? kept : 0,
             .max_width = kept});
  auto up = b.lane();
  if (dimensions == 0) up.copy(in(0), out(0), {.finish = true});
  std::optional<Builder::LaneBuilder> down;
  for (int d = 0; d < dimensions && !down; ++d)
    if (grid.size(d) > 2) down = b.lane();
  std::vector<StepId> after;
  for (int d = 0; d < dimensions; ++d) {
    const TwoWayLine line = two_way_line(grid, d, rank, after);
    const auto held = [&](int member, int stride) {
      const int chunk = line.part(member);
      return d == 0 ? in(chunk, stride) : tmp(chunk % kept, stride);
    };
    const Operand sum = tmp(line.part(line.own) % kept);
    after = {two_way_reduce_scatter(&up, down ? &*down : nullptr, line, held, sum,
                                    d == dimensions - 1 ? out(0) : sum)};
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const TwoWayCosts costs = two_way_costs(grid);
  return {.rounds = costs.rounds,
          .chunks_sent = std::int64_t{problem.ranks} - 1,
          .chunks_received = costs.most_chunks};
}

}  // namespace

extern const Algorithm k_reduce_scatter_torus_ranges;
const Algorithm k_reduce_scatter_torus_ranges = {
    .name = "torus_ranges",
    .collective = Collective::reduce_scatter,
    .source =
        "Chan, Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice, and "
        "experience, CCPE "
        "19 (2007), section 7",
    .cost =
        "sum(a_i / 2) alpha + n/2 (p-1)/p beta + n gamma on a torus of sides a_i; sum(a_i - 1) alpha + n "
        "(p-1)/p beta "
        "on a mesh",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
