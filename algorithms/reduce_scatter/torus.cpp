// Multi-port bucket on a torus or mesh: see shapes/torus.hpp. Stream s carries part s of every block. After
// the first stage a rank holds partial results of the blocks that share its coordinate in the first
// dimension: scratch chunks [stream's first, ...), numbered by the other coordinates in the stream's order.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
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
  const TorusPlan plan = torus_plan(grid, TorusParts::reduce_scatter, problem.pieces);
  const int here = grid.position_of(rank), K = static_cast<int>(plan.streams.size());
  const int last_stage = grid.dimensions() - 1;
  std::vector<int> first_cell;  // of each stream
  int cells = 0;
  for (const TorusStream& stream : plan.streams) {
    first_cell.push_back(cells);
    if (last_stage > 0) cells += TorusPlan::width(grid, stream, 0);
  }
  Builder b({.algorithm = "torus",
             .collective = Collective::reduce_scatter,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = K,
             .scratch_chunks = cells});
  std::vector<Builder::LaneBuilder> lanes;
  for (int l = 0; l < plan.lanes; ++l) lanes.push_back(b.lane());
  if (grid.dimensions() == 0) lanes[0].copy(in(0), out(0), {.finish = true});
  std::vector<StepId> last;  // of each task
  for (const TorusTask& task : plan.tasks) {
    const TorusStream& stream = plan.streams[task.stream];
    const int d = stream.order[task.stage], a = grid.size(d), way = TorusPlan::way_in(grid, stream, d);
    const int own = grid.coordinate(here, d), stride = -way * grid.stride(d) * K;
    const int width = TorusPlan::width(grid, stream, task.stage);
    int cell = first_cell[task.stream];  // of coordinate 0 in this dimension and the ones after it
    for (int i = 1; i < task.stage; ++i)
      cell += grid.coordinate(here, stream.order[i]) * TorusPlan::width(grid, stream, i);
    const Operand arrives = from(grid.rank_at(grid.with(here, d, own - way)), task.channel);
    const Operand leaves = to(grid.rank_at(grid.with(here, d, own + way)), {}, task.channel);
    std::vector<StepId> after;
    if (task.after >= 0 && plan.tasks[task.after].lane != task.lane) after.push_back(last[task.after]);
    Builder::LaneBuilder& lane = lanes[task.lane];
    StepId done;
    each_position_after(grid, stream, task.stage, here, [&](int position, int number) {
      const auto block = [&](int coordinate, int by = 0) {
        return in(grid.rank_at(grid.with(position, d, coordinate)) * K + task.stream, by);
      };
      const auto held = [&](int coordinate) {
        return task.stage == 0 ? block(coordinate) : tmp(cell + wrap(coordinate % a, a) * width + number);
      };
      const auto sized = [&](int coordinate) {
        return StepOptions{.after = after, .size_of = block(coordinate)};
      };
      lane.send(held(own - way), leaves, sized(own - way));
      if (task.stage == 0 && grid.row_major())
        lane.repeat(a - 2, -way * stride * a, [&] {
          lane.step({arrives, block(own - 2 * way, stride)}, {leaves});
        });
      else
        for (int i = 2; i < a; ++i)
          lane.step({arrives, held(own - i * way)}, {leaves}, sized(own - i * way));
      StepOptions options = sized(own);
      options.finish = task.stage == last_stage;
      const Operand result = options.finish    ? out(task.stream)
                             : task.stage == 0 ? tmp(cell + number)
                                               : held(own);
      done = lane.step({arrives, held(own)}, {result}, options);
    });
    last.push_back(done);
  }
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  const TorusPlan plan = torus_plan(grid, TorusParts::reduce_scatter, problem.pieces);
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

extern const Algorithm k_reduce_scatter_torus;
const Algorithm k_reduce_scatter_torus = {
    .name = "torus",
    .collective = Collective::reduce_scatter,
    .source =
        "Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives on torus interconnects, "
        "ICS 2010; Sack "
        "and Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1 (2015)",
    .cost = "(p-1) alpha + n (p-1)/(p k) beta + n (p-1)/p gamma on k ports of a torus",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
