#pragma once
// tamaki simulate --parallel: the communicators of training in three dimensions, all of one kind at the
// same time, under several placements of the ranks.

#include <functional>
#include <string>
#include <vector>

#include "simulate/sweep.hpp"
#include "topology/placement/groups.hpp"

namespace tamaki::tools {

/// "6x8x288" -> TP 6, PP 8, DP 288.
Result<ParallelSizes> parse_parallel(const std::string& text);

struct ParallelOptions {
  ParallelSizes sizes = {};
  std::string order = "tp-dp-pp";  // ranks counted from fastest to slowest
  enum class Kind { tp, pp, dp } kind = Kind::dp;
  /// Beside the ranks' own order, every cut of the torus into blocks, the best of them, or none.
  enum class Places { given, best, all } places = Places::best;
};

/// One placement and what was timed there.
struct ParallelRow {
  std::string placement;  // "ranks in the order given", "TP 1x6x1, DP 6x1x48, PP 8x1x1"
  std::string where;      // "48 groups of 288: 6x48 torus"
  SweepOptions options;
  Sweep sweep;
};

/// What a stage of a pipeline gives the next, all stages at once: member i sends n bytes to member i + 1,
/// on `lanes` lanes.
extern const Algorithm k_stage_send;

/// The given order first, then cuts, fastest at the largest size first. Cuts on which no algorithm serves
/// are left out. `base` has machine, placement, algorithms and sizes.
Result<std::vector<ParallelRow>> run_parallel(
    const SweepOptions& base, const ParallelOptions& parallel,
    const std::function<void(const std::string&, int, int)>& progress);

std::string parallel_table(const ParallelOptions& parallel, const std::vector<ParallelRow>& rows);
/// {"cluster", "parallel", "groups", "placements": [{"placement", "where", and what sweep_json has}]}.
std::string parallel_json(const ParallelOptions& parallel, const std::vector<ParallelRow>& rows);

}  // namespace tamaki::tools
