// One dimension of a torus or mesh after the other, the fastest first, both ways round each: what a rank
// holds then always is one range of blocks, so that every message is one range. See
// shapes/two_way_line.hpp.
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
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return refuse_without_row_major_grid(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const int dimensions = grid.dimensions();
  Builder b({.algorithm = "torus_ranges",
             .collective = Collective::allgather,
             .ranks = problem.ranks,
             .rank = rank,
             .max_width = dimensions > 0 ? grid.stride(0) : 1});
  auto up = b.lane();
  if (dimensions == 0) up.copy(in(0), out(0));
  std::optional<Builder::LaneBuilder> down;
  for (int d = 0; d < dimensions && !down; ++d)
    if (grid.size(d) > 2) down = b.lane();
  std::vector<StepId> after;
  for (int d = dimensions - 1; d >= 0; --d) {
    const TwoWayLine line = two_way_line(grid, d, rank, after);
    after = two_way_allgather(&up, down ? &*down : nullptr, line,
                              d == dimensions - 1 ? in(0) : out(line.part(line.own)));
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const TwoWayCosts costs = two_way_costs(grid);
  return {.rounds = costs.rounds,
          .chunks_sent = costs.most_chunks,
          .chunks_received = std::int64_t{problem.ranks} - 1};
}

}  // namespace

extern const Algorithm k_allgather_torus_ranges;
const Algorithm k_allgather_torus_ranges = {
    .name = "torus_ranges",
    .collective = Collective::allgather,
    .source =
        "Barnett, Payne, van de Geijn, Watts, Broadcasting on meshes with worm-hole routing, JPDC 35 "
        "(1996); Chan, "
        "Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice, and experience, "
        "CCPE 19 "
        "(2007), section 7",
    .cost =
        "sum(a_i / 2) alpha + n/2 (p-1)/p beta on a torus of sides a_i; sum(a_i - 1) alpha + n (p-1)/p "
        "beta on a mesh",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
