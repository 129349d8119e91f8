// Bruck, radix k: the block for the rank i after this one travels the distance i digit by digit in base k.
// In round (j, d) everyone sends the rank d*k^j after it, in one message, all blocks whose digit j is d.
//
// Blocks are packed where they are not neighbours in memory, and stay where they arrive until they are
// packed again or, at the end, go to their place.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Offsets 1..p-1 with digit `d` at weight `weight`, descending, so that blocks that have arrived lie in
/// rank order.
std::vector<int> offsets_of(int p, int radix, long long weight, int d) {
  std::vector<int> offsets;
  for (int i = p - 1; i > 0; --i)
    if (i / weight % radix == d) offsets.push_back(i);
  return offsets;
}

/// Calls run(first, length) for each stretch of `places` that is consecutive in one buffer.
template <class Run>
void each_run(const std::vector<Operand>& places, const Run& run) {
  std::size_t first = 0;
  for (std::size_t i = 1; i <= places.size(); ++i) {
    const bool goes_on = i < places.size() && places[i].buffer == places[first].buffer &&
                         places[i].chunk == places[first].chunk + static_cast<int>(i - first);
    if (goes_on) continue;
    run(first, static_cast<int>(i - first));
    first = i;
  }
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, radix = problem.radix;
  int widest = 1, received = 0;
  for (long long weight = 1; weight < p; weight *= radix)
    for (int d = 1; d < radix && d * weight < p; ++d) {
      const int width = static_cast<int>(offsets_of(p, radix, weight, d).size());
      widest = std::max(widest, width);
      received += width;
    }
  Builder b({.algorithm = "bruck",
             .collective = Collective::alltoall,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = p > 1 ? widest + received : 0,
             .max_width = widest});
  auto lane = b.lane();
  std::vector<Operand> place(static_cast<std::size_t>(p));  // of the block at each offset
  for (int i = 0; i < p; ++i) place[i] = in(wrap(rank + i, p));
  int arrived = widest;  // next free scratch chunk; those below are where messages are put together
  for (long long weight = 1; weight < p; weight *= radix) {
    for (int d = 1; d < radix && d * weight < p; ++d) {
      const std::vector<int> offsets = offsets_of(p, radix, weight, d);
      const int width = static_cast<int>(offsets.size());
      std::vector<Operand> parts;
      for (int i : offsets) parts.push_back(place[i]);
      int runs = 0;
      each_run(parts, [&](std::size_t, int) { ++runs; });
      Operand message = parts[0];
      if (runs > 1) {
        message = tmp(0);
        each_run(parts, [&](std::size_t first, int length) {
          lane.copy(parts[first], tmp(static_cast<int>(first)), {.width = length, .size_of = in(0)});
        });
      }
      lane.send(message, to(wrap(rank + static_cast<int>(d * weight), p)),
                {.width = width, .size_of = in(0)});
    }
    for (int d = 1; d < radix && d * weight < p; ++d) {
      const std::vector<int> offsets = offsets_of(p, radix, weight, d);
      const int width = static_cast<int>(offsets.size());
      lane.recv(from(wrap(rank - static_cast<int>(d * weight), p)), tmp(arrived),
                {.width = width, .size_of = in(0)});
      for (int i : offsets) place[i] = tmp(arrived++);
    }
  }
  lane.copy(in(rank), out(rank));
  std::vector<Operand> parts;
  std::vector<int> offsets;
  for (int i = p - 1; i > 0; --i) {
    parts.push_back(place[i]);
    offsets.push_back(i);
  }
  each_run(parts, [&](std::size_t first, int length) {
    // The output's blocks run past the last rank once.
    for (int done = 0; done < length;) {
      const int to_block = wrap(rank - offsets[first] + done, p);
      const int width = std::min(length - done, p - to_block);
      Operand source = parts[first];
      source.chunk += done;
      lane.copy(source, out(to_block), {.width = width});
      done += width;
    }
  });
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  ClosedForm form;
  for (long long weight = 1; weight < p; weight *= problem.radix)
    for (int d = 1; d < problem.radix && d * weight < p; ++d) {
      ++form.rounds;
      form.chunks_sent += static_cast<std::int64_t>(offsets_of(p, problem.radix, weight, d).size());
    }
  form.chunks_received = form.chunks_sent;
  return form;
}

}  // namespace

extern const Algorithm k_alltoall_bruck;
const Algorithm k_alltoall_bruck = {
    .name = "bruck",
    .collective = Collective::alltoall,
    .source =
        "Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications in "
        "multiport message-passing systems, IEEE TPDS 8 (1997)",
    .cost = "(k-1) log_k(p) alpha + (k-1)/k log_k(p) n beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = false,
    .uneven_safe = false,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
