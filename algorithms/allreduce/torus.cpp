// Multi-port bucket on a torus or mesh: see shapes/torus.hpp. Stream s carries chunks [s*p, (s+1)*p); in
// the order of its dimensions the chunks of a coordinate's range are neighbours, so that every message is
// one range.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/ring_stage.hpp"
#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_reordering(topology, problem); !reason.empty()) return reason;
  return refuse_without_torus_plan(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const TorusPlan plan = torus_plan(grid, TorusParts::both, problem.pieces);
  const int p = problem.ranks, here = grid.position_of(rank);
  int widest = 1;
  for (const TorusTask& task : plan.tasks)
    widest = std::max(widest, TorusPlan::width(grid, plan.streams[task.stream], task.stage));
  Builder b({.algorithm = "torus",
             .collective = Collective::allreduce,
             .ranks = p,
             .rank = rank,
             .chunks = p * static_cast<int>(plan.streams.size()),
             .max_width = widest});
  std::vector<Builder::LaneBuilder> lanes;
  for (int l = 0; l < plan.lanes; ++l) lanes.push_back(b.lane());
  if (grid.dimensions() == 0) lanes[0].copy(in(0), out(0), {.finish = true});
  std::vector<StepId> last;  // of each task
  for (const TorusTask& task : plan.tasks) {
    const TorusStream& stream = plan.streams[task.stream];
    const int dimension = stream.order[task.stage], a = grid.size(dimension);
    const int width = TorusPlan::width(grid, stream, task.stage),
              way = TorusPlan::way_in(grid, stream, dimension);
    int begin = task.stream * p;  // of the range that the stages before leave to this rank and its ring
    for (int i = 0; i < task.stage; ++i)
      begin += grid.coordinate(here, stream.order[i]) * TorusPlan::width(grid, stream, i);
    std::vector<StepId> after;
    if (task.after >= 0 && plan.tasks[task.after].lane != task.lane) after.push_back(last[task.after]);
    const int own = grid.coordinate(here, dimension);
    const RingStage ring = {.size = a,
                            .own = own,
                            .way = way,
                            .next = grid.rank_at(grid.with(here, dimension, own + way)),
                            .previous = grid.rank_at(grid.with(here, dimension, own - way)),
                            .channel = task.channel,
                            .begin = begin,
                            .width = width,
                            .after = after};
    if (task.gather)
      last.push_back(ring_allgather(lanes[task.lane], ring));
    else
      last.push_back(ring_reduce_scatter(lanes[task.lane], ring,
                                         task.stage == 0 ? HeldIn::input : HeldIn::output,
                                         task.stage == grid.dimensions() - 1 ? Finish::yes : Finish::no));
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const TorusPlan plan = torus_plan(grid, TorusParts::both, problem.pieces);
  const std::int64_t p = problem.ranks, streams = std::ssize(plan.streams);
  const auto rounds_of = [&](const TorusTask& task) {
    return grid.size(plan.streams[task.stream].order[task.stage]) - 1;
  };
  return {.rounds = torus_rounds(plan, rounds_of),
          .chunks_sent = 2 * (p - 1) * streams,
          .chunks_received = 2 * (p - 1) * streams,
          .chunks = p * streams};
}

}  // namespace

extern const Algorithm k_allreduce_torus;
const Algorithm k_allreduce_torus = {
    .name = "torus",
    .collective = Collective::allreduce,
    .source =
        "Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives on torus interconnects, "
        "ICS 2010; Sack "
        "and Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1 (2015)",
    .cost =
        "2 sum(a_i - 1) alpha + 2 n (p-1)/(p k) beta + n (p-1)/p gamma on k ports of a torus of equal "
        "sides a_i; uneven "
        "sides: more alpha",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
