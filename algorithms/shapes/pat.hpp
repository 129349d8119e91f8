#pragma once
// The order in which blocks spread in NCCL's PAT (parallel aggregated trees): a binomial tree from each
// rank, the farthest first, so that far ranks get few data. Jeaugey, PAT: a new algorithm for all-gather
// and reduce-scatter operations at scale, arXiv 2506.20252 (2025).

#include <algorithm>
#include <vector>

#include "algorithms/shapes/arguments.hpp"

namespace tamaki {

struct PatRound {
  int distance = 0;  // blocks go from rank r to rank r + distance
  /// Places [begin, begin + count) of the sender; they arrive at [arrival, arrival + count) of the
  /// receiver.
  struct Run {
    int begin = 0, count = 0, arrival = 0;
  };
  std::vector<Run> runs;
};

/// Rounds of an allgather on p ranks in order, and which block lies at each place: offsets[i] = k is that
/// of the rank k before. Equal on all ranks.
struct PatPlan {
  std::vector<PatRound> rounds;
  std::vector<int> offsets = {0};
  int widest = 1;

  explicit PatPlan(int p) {
    offsets.reserve(static_cast<std::size_t>(p));
    for (int distance = p > 1 ? floor_power_of_two(p - 1) : 0; distance > 0; distance /= 2) {
      PatRound round{distance, {}};
      const int held = static_cast<int>(offsets.size());
      for (int i = 0; i < held; ++i) {
        if (offsets[i] + distance >= p) continue;  // one at most: the last
        if (!round.runs.empty() && round.runs.back().begin + round.runs.back().count == i)
          ++round.runs.back().count;
        else
          round.runs.push_back({i, 1, static_cast<int>(offsets.size())});
        offsets.push_back(offsets[i] + distance);
      }
      for (const PatRound::Run& run : round.runs) widest = std::max(widest, run.count);
      rounds.push_back(std::move(round));
    }
  }
};

}  // namespace tamaki
