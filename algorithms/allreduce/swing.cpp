// Swing on a torus: see shapes/swing.hpp. Streams start in different dimensions, half of them mirrored, as
// many as the rank has ports and links; stream s carries chunks [s*p, (s+1)*p).
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/swing.hpp"
#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_grid(topology, problem);
}

struct Stream {
  int first = 0;  // dimension
  SwingGrid::Side side = SwingGrid::Side::plain;
};

std::vector<Stream> streams_of(const Grid& grid) {
  std::vector<Stream> streams;
  for (SwingGrid::Side side : {SwingGrid::Side::plain, SwingGrid::Side::mirrored})
    for (int d = 0; d < grid.dimensions(); ++d)
      if (side == SwingGrid::Side::plain || grid.size(d) > 2) streams.push_back({d, side});
  streams.resize(std::min(streams.size(), static_cast<std::size_t>(grid.ports())));
  return streams;
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const std::vector<Stream> streams = streams_of(grid);
  const int p = problem.ranks, here = grid.position_of(rank);
  Builder b({.algorithm = "swing",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p * std::max(1, static_cast<int>(streams.size())),
             .max_width = p > 1 ? p / 2 : 1});
  if (p == 1) b.lane().copy(in(0), out(0), {.finish = true});
  std::vector<int> sizes;
  for (int d = 0; d < grid.dimensions(); ++d) sizes.push_back(grid.size(d));
  for (std::size_t s = 0; s < streams.size(); ++s) {
    auto lane = b.lane();
    const SwingGrid swing(sizes, streams[s].first, streams[s].side);
    swing_allreduce(lane, swing, here, static_cast<int>(s) * p,
                    [&](int position) { return grid.rank_at(position); });
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const std::int64_t p = problem.ranks, streams = std::ssize(streams_of(grid));
  std::int64_t rounds = 0;
  for (int d = 0; d < grid.dimensions(); ++d)
    rounds = rounds < 0 || !is_power_of_two(grid.size(d)) ? ClosedForm::kNotStated
                                                          : rounds + 2 * ceil_log(grid.size(d), 2);
  return {.rounds = rounds,
          .chunks_sent = 2 * (p - 1) * streams,
          .chunks_received = 2 * (p - 1) * streams,
          .chunks = p * std::max<std::int64_t>(1, streams)};
}

}  // namespace

extern const Algorithm k_allreduce_swing;
const Algorithm k_allreduce_swing = {
    .name = "swing",
    .collective = Collective::allreduce,
    .source =
        "De Sensi, Bonato, Saam, Hoefler, Swing: short-cutting rings for higher bandwidth allreduce, NSDI "
        "2024, sections "
        "3 and 4",
    .cost =
        "2 log2(p) alpha + 2 n (p-1)/(p k) Xi beta + n gamma on k = 2D ports of a torus; Xi = (1 - 2^-D) "
        "sum_s delta(s) "
        "2^(-s D), delta = 1, 1, 3, 5, 11, ...: at most 1.20 (2-D), 1.04 (3-D)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
