// Bruck, radix k: a rank that holds w blocks, from its own on around the ranks, sends them to the ranks d*w
// before it, d = 1..k-1, and then holds k*w. Blocks go to their place in the output at once: nothing is
// rotated at the end, but a run of blocks that goes past the last rank is sent as two messages.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Calls `part(first block, number of blocks)` for `blocks` blocks from `begin` on around p ranks: once, or
/// twice where they go past the last rank.
template <class Part>
void each_part(int begin, int blocks, int p, const Part& part) {
  const int straight = std::min(blocks, p - begin);
  part(begin, straight);
  if (blocks > straight) part(0, blocks - straight);
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks, radix = problem.radix;
  int widest = 1;
  for (long long w = 1; w < p; w *= radix) widest = std::max(widest, static_cast<int>(std::min(w, p - w)));
  Builder b({.algorithm = "bruck",
             .collective = Collective::allgather,
             .ranks = p,
             .rank = rank,
             .max_width = widest});
  auto lane = b.lane();
  std::vector<Operand> first;
  for (int d = 1; d < std::min(radix, p); ++d) first.push_back(to(wrap(rank - d, p), out(rank)));
  first.push_back(out(rank));
  lane.step(std::vector{in(0)}, first);
  for (long long w = 1; w < p; w *= radix) {
    for (int d = 1; d < radix && d * w < p && w > 1; ++d) {
      const int away = static_cast<int>(d * w), blocks = static_cast<int>(std::min(w, p - d * w));
      each_part(rank, blocks, p, [&](int begin, int width) {
        lane.send(out(begin), to(wrap(rank - away, p), out(begin)), {.width = width});
      });
    }
    for (int d = 1; d < radix && d * w < p; ++d) {
      const int away = static_cast<int>(d * w), blocks = static_cast<int>(std::min(w, p - d * w));
      const int peer = wrap(rank + away, p);
      each_part(peer, blocks, p,
                [&](int begin, int width) { lane.recv(from(peer), out(begin), {.width = width}); });
    }
  }
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks, radix = problem.radix;
  ClosedForm form = {.chunks_sent = p - 1, .chunks_received = p - 1};
  // The last rank's messages of two blocks or more all come in two parts.
  for (long long w = 1; w < p; w *= radix)
    for (int d = 1; d < radix && d * w < p; ++d) form.rounds += std::min(w, p - d * w) > 1 ? 2 : 1;
  return form;
}

}  // namespace

extern const Algorithm k_allgather_bruck;
const Algorithm k_allgather_bruck = {
    .name = "bruck",
    .collective = Collective::allgather,
    .source =
        "Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications in "
        "multiport message-passing systems, IEEE TPDS 8 (1997)",
    .cost =
        "(k-1) log_k(p) alpha (up to twice that for messages that go past the last rank) + n (p-1)/p beta",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_bad_arguments,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
