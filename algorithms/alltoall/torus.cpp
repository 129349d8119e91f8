// By dimension: in each dimension of a torus or mesh in turn, ranks of a line exchange all blocks for each
// other's side, so that messages stay on the line. Before dimension k the blocks are numbered by the
// coordinates of their senders in the dimensions before, then by those of their receivers in the others;
// after it, the k-th digit is the sender's.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/torus.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

std::string refuses(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  return refuse_without_grid(topology, problem);
}

Program build(const Topology& topology, const Problem& problem, int rank) {
  const Grid grid(topology);
  const int p = problem.ranks, dimensions = grid.dimensions(), here = grid.position_of(rank);
  int widest = 1;
  for (int d = 0; d < dimensions; ++d) widest = std::max(widest, p / grid.size(d));
  // Scratch: two stores of p blocks, taken in turn, a message that goes out and one that has come in.
  const bool scratch = dimensions > 1 || !grid.row_major();
  Builder b({.algorithm = "torus",
             .collective = Collective::alltoall,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = scratch ? 2 * p + 2 * widest : 0,
             .max_width = widest});
  auto lane = b.lane();
  if (dimensions == 0) {
    lane.copy(in(0), out(0));
    return b.take();
  }
  const int leaving = 2 * p, come = 2 * p + widest;
  const auto store = [&](int k) {  // before dimension k
    if (k == 0 && grid.row_major()) return in(0);
    if (k == dimensions && grid.row_major()) return out(0);
    return tmp(k % 2 * p);
  };
  const auto at = [](Operand operand, int chunk, int stride = 0) {
    operand.chunk += chunk;
    operand.stride = stride;
    return operand;
  };
  if (!grid.row_major())
    for (int position = 0; position < p; ++position)
      lane.copy(in(grid.rank_at(position)), at(store(0), position));
  int pieces = 1;  // runs of blocks that go to, or come from, one rank
  for (int k = 0; k < dimensions; ++k) {
    const int a = grid.size(k), own = grid.coordinate(here, k), width = grid.stride(k), apart = a * width;
    const Operand before = store(k), then = store(k + 1);
    const StepOptions piece = {.width = width, .size_of = in(0)},
                      whole = {.width = pieces * width, .size_of = in(0)};
    for (int round = 0; round < a; ++round) {
      const int other = is_power_of_two(a) ? own ^ round : wrap(round - own, a);
      const int begin = other * width;
      if (other == own) {
        lane.repeat(pieces, 0, [&] { lane.copy(at(before, begin, apart), at(then, begin, apart), piece); });
        continue;
      }
      const int peer = grid.rank_at(grid.with(here, k, other));
      if (pieces == 1) {
        const bool lands = then.buffer == Buffer::output;
        lane.send(at(before, begin), to(peer, lands ? out(own * width) : Operand{}), whole);
        lane.recv(from(peer), at(then, begin), whole);
        continue;
      }
      lane.repeat(pieces, 0, [&] { lane.copy(at(before, begin, apart), tmp(leaving, width), piece); });
      lane.send(tmp(leaving), to(peer), whole);
      lane.recv(from(peer), tmp(come), whole);
      lane.repeat(pieces, 0, [&] { lane.copy(tmp(come, width), at(then, begin, apart), piece); });
    }
    pieces *= a;
  }
  if (!grid.row_major())
    for (int position = 0; position < p; ++position)
      lane.copy(at(store(dimensions), position), out(grid.rank_at(position)));
  return b.take();
}

ClosedForm closed_form(const Topology& topology, const Problem& problem) {
  const Grid grid(topology);
  ClosedForm form;
  bool stated = true;
  for (int d = 0; d < grid.dimensions(); ++d) {
    const int a = grid.size(d);
    form.rounds += is_power_of_two(a) ? a - 1 : a;
    stated = stated && (is_power_of_two(a) || grid.dimensions() == 1);
    form.chunks_sent += std::int64_t{a - 1} * (problem.ranks / a);
  }
  if (!stated) form.rounds = ClosedForm::kNotStated;
  form.chunks_received = form.chunks_sent;
  return form;
}

}  // namespace

extern const Algorithm k_alltoall_torus;
const Algorithm k_alltoall_torus = {
    .name = "torus",
    .collective = Collective::alltoall,
    .source =
        "folklore (exchange by dimension); Suh and Shin, All-to-all personalized communication in "
        "multidimensional "
        "torus and mesh networks, IEEE TPDS 12 (2001)",
    .cost =
        "sum(a_i - 1) alpha + n sum((a_i - 1)/a_i) beta, a_i/8 times beta where a line of a_i is the "
        "bottleneck",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .uneven_safe = false,
    .uses_topology = true,
    .refuses = refuses,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
