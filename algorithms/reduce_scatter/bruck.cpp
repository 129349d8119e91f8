// Bruck's allgather run backwards: in the round of distance w rank r sends rank r+w its partial results of
// the blocks r+w.. (as many as that rank will go on with) and adds those that come from rank r-w. Any
// number of ranks.
//
// A message is cut where its blocks go past the last rank, and where one side has partial results for some
// of them and its raw input for the rest.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/shapes/arguments.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Blocks [begin, begin + width) of a message, counted from its first.
struct Part {
  int begin = 0, width = 0;
};

/// The parts of the message of round `w` to rank `receiver`, of `blocks` blocks from the receiver's own on.
/// Offsets below `reduced` (from a rank's own block) hold partial results on every rank.
std::vector<Part> parts(int receiver, int w, int blocks, int reduced, int p) {
  std::vector<int> cuts = {0, blocks};
  for (int cut : {p - receiver, reduced, reduced - w})
    if (cut > 0 && cut < blocks) cuts.push_back(cut);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Part> result;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) result.push_back({cuts[i], cuts[i + 1] - cuts[i]});
  return result;
}

/// Calls round(w, blocks, reduced) for each round.
template <class Round>
void each_round(int p, const Round& round) {
  int reduced = 0;
  for (int w = floor_power_of_two(std::max(1, p - 1)); w > 0 && p > 1; w /= 2) {
    const int blocks = std::min(w, p - w);
    round(w, blocks, reduced);
    reduced = std::max(reduced, blocks);
  }
}

Program build(const Topology&, const Problem& problem, int rank) {
  const int p = problem.ranks;
  int scratch = 0, widest = 1;
  each_round(p, [&](int w, int blocks, int reduced) {
    if (w > 1) scratch = std::max(scratch, blocks);
    // To rank 0 no message goes past the last rank.
    for (const Part& part : parts(0, w, blocks, reduced, p)) widest = std::max(widest, part.width);
  });
  Builder b({.algorithm = "bruck",
             .collective = Collective::reduce_scatter,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = scratch,
             .max_width = widest});
  auto lane = b.lane();
  if (p == 1) lane.copy(in(0), out(0), {.finish = true});
  each_round(p, [&](int w, int blocks, int reduced) {
    const auto block = [&](int offset) { return (rank + offset) % p; };
    const auto held = [&](int offset) { return offset < reduced ? tmp(offset) : in(block(offset)); };
    const int next = block(w), previous = wrap(rank - w, p);
    const std::vector<Part> outgoing = parts(next, w, blocks, reduced, p),
                            incoming = parts(rank, w, blocks, reduced, p);
    // In turn: all parts of a message first would need as many slots.
    for (std::size_t i = 0; i < std::max(outgoing.size(), incoming.size()); ++i) {
      if (i < outgoing.size()) {
        const auto [begin, width] = outgoing[i];
        lane.send(held(w + begin), to(next), {.width = width, .size_of = in(block(w + begin))});
      }
      if (i < incoming.size()) {
        const auto [begin, width] = incoming[i];
        lane.step({held(begin), from(previous)}, {w == 1 ? out(0) : tmp(begin)},
                  {.width = width, .finish = w == 1, .size_of = in(block(begin))});
      }
    }
  });
  return b.take();
}

ClosedForm closed_form(const Topology&, const Problem& problem) {
  const int p = problem.ranks;
  ClosedForm form = {.chunks_sent = p - 1, .chunks_received = p - 1};
  // The busiest rank is one whose messages are cut most often.
  each_round(p, [&](int w, int blocks, int reduced) {
    const auto uncut = static_cast<std::int64_t>(parts(0, w, blocks, reduced, p).size());
    form.rounds += uncut + (uncut < blocks);
  });
  return form;
}

}  // namespace

extern const Algorithm k_reduce_scatter_bruck;
const Algorithm k_reduce_scatter_bruck = {
    .name = "bruck",
    .collective = Collective::reduce_scatter,
    .source =
        "Bernaschi, Iannello, Lauria, Efficient implementation of reduce-scatter in MPI, J. Systems "
        "Architecture 49 (2003)",
    .cost = "log2(p) alpha (more for messages that are cut) + n (p-1)/p (beta + gamma)",
    .direct_safe = true,
    .in_place_safe = true,
    .direct_in_place_safe = true,
    .refuses = refuse_reordering,
    .build = build,
    .closed_form = closed_form,
};

}  // namespace tamaki
