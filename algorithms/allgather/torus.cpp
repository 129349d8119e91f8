// Multi-port bucket on a torus or mesh: see shapes/torus.hpp. Stream s carries part s of every block.
// Blocks that a rank holds after a stage are no neighbours in the output, so that each of them goes around
// the next ring by itself.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return refuse_without_torus_plan(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const TorusPlan plan = torus_plan(grid, TorusParts::allgather, problem.pieces);
  const int here = grid.position_of(rank), K = static_cast<int>(plan.streams.size());
  Builder b({.algorithm = "torus",
             .collective = Collective::allgather,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = K});
  std::vector<Builder::LaneBuilder> lanes;
  for (int l = 0; l < plan.lanes; ++l) lanes.push_back(b.lane());
  if (grid.dimensions() == 0) lanes[0].copy(in(0), out(0));
  std::vector<StepId> last;  // of each task
  for (const TorusTask& task : plan.tasks) {
    const TorusStream& stream = plan.streams[task.stream];
    const int d = stream.order[task.stage], a = grid.size(d), way = TorusPlan::way_in(grid, stream, d);
    const int own = grid.coordinate(here, d), stride = -way * grid.stride(d) * K;
    const int next = grid.rank_at(grid.with(here, d, own + way)),
              previous = grid.rank_at(grid.with(here, d, own - way));
    std::vector<StepId> after;
    if (task.after >= 0 && plan.tasks[task.after].lane != task.lane) after.push_back(last[task.after]);
    Builder::LaneBuilder& lane = lanes[task.lane];
    StepId done;
    each_position_after(grid, stream, task.stage, here, [&](int position, int) {
      const auto block = [&](int coordinate, int by = 0) {
        return out(grid.rank_at(grid.with(position, d, coordinate)) * K + task.stream, by);
      };
      const Operand mine = block(own), arrives = from(previous, task.channel);
      if (task.stage == grid.dimensions() - 1)
        lane.step({in(task.stream)}, {to(next, mine, task.channel), mine});
      else
        lane.send(mine, to(next, mine, task.channel), {.after = after});
      if (grid.row_major())
        lane.repeat(a - 2, -way * stride * a, [&] {
          const Operand first = block(own - way, stride);
          lane.step({arrives}, {to(next, first, task.channel), first});
        });
      else
        for (int i = 1; i < a - 1; ++i)
          lane.step({arrives}, {to(next, block(own - i * way), task.channel), block(own - i * way)});
      done = lane.recv(arrives, block(own + way));
    });
    last.push_back(done);
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const TorusPlan plan = torus_plan(grid, TorusParts::allgather, problem.pieces);
  const std::int64_t moved = std::ssize(plan.streams) * (std::int64_t{problem.ranks} - 1);
  const auto rounds_of = [&](const TorusTask& task) {
    const TorusStream& stream = plan.streams[task.stream];
    return std::int64_t{TorusPlan::width(grid, stream, task.stage)} *
           (grid.size(stream.order[task.stage]) - 1);
  };
  return {.rounds = torus_rounds(plan, rounds_of),
          .chunks_sent = moved,
          .chunks_received = moved,
          .chunks = std::ssize(plan.streams)};
}

}  // namespace

extern const Algorithm k_allgather_torus;
const Algorithm k_allgather_torus = {
    .name = "torus",
    .collective = Collective::allgather,
    .source =
        "Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives on torus interconnects, "
        "ICS 2010; Sack "
        "and Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1 (2015)",
    .cost = "(p-1) alpha + n (p-1)/(p k) beta on k ports of a torus",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
