#pragma once
// tamaki simulate: algorithms x sizes on a modelled machine, and what is made of the results.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "base/result.hpp"
#include "select/costs.hpp"
#include "simulate/simulate.hpp"

namespace tamaki::tools {

struct SweepOptions {
  Machine machine;
  Placement placement;
  Topology topology;      // what algorithms may know of it
  std::string structure;  // the same for people
  NetworkOptions network;
  std::vector<const Algorithm*> algorithms;  // of one collective
  std::vector<double> sizes;                 // bytes, ascending
  int root = 0;
  /// Values of Problem's wishes to try, where the algorithm has them; of each size the fastest is shown.
  Wishes wishes;
  std::vector<int> slices = {1};
  /// Not 0: the slices are those in which the executor moves chunks through slots of so many bytes, for
  /// each schedule and size, and `slices` is not looked at.
  std::size_t slot_bytes = 0;
  int threads = 1;
  /// Not empty: communicators that run at the same time, as ranks of `placement`; all of one size.
  /// `topologies` has what algorithms may know of each, `topology` that of the first. Sizes are of one
  /// communicator then.
  std::vector<std::vector<std::int32_t>> groups = {};
  std::vector<Topology> topologies = {};

  /// Ranks of a communicator.
  std::int32_t ranks() const {
    return groups.empty() ? placement.size() : static_cast<std::int32_t>(groups.front().size());
  }
};

struct SweepCell {
  bool done = false;
  int slices = 1;
  Candidate candidate;
  Simulation simulation;
};

struct SweepRow {
  const Algorithm* algorithm = nullptr;
  std::string refused = {};           // why it has no results; else empty
  std::vector<SweepCell> cells = {};  // beside SweepOptions::sizes: the best candidate
};

struct Sweep {
  std::vector<SweepRow> rows;  // beside SweepOptions::algorithms
  std::vector<double> bounds;  // seconds, beside the sizes
  std::vector<Curve> curves;   // of every candidate, also of those that have no results
  double wall_s = 0;
  /// Number of the row that is fastest at a size, -1: none.
  int best(std::size_t size) const;
};

/// `progress` is told what is being done and how much of all, from several threads but one at a time.
Result<Sweep> run_sweep(const SweepOptions& options,
                        const std::function<void(const std::string& now, int done, int all)>& progress);

/// One schedule with its timeline.
Result<Simulation> time_with_spans(const SweepOptions& options, const Candidate& candidate, double bytes,
                                   int slices, std::vector<SimulatedSpan>* spans);

/// A table for people.
std::string sweep_table(const SweepOptions& options, const Sweep& sweep);
/// {"cluster", "ranks", "results": [{"bytes", "algorithm", "seconds", ...}]}.
std::string sweep_json(const SweepOptions& options, const Sweep& sweep);
/// Time and bus bandwidth over size, the bound, and where the fastest algorithm changes. SVG.
std::string sweep_plot(const SweepOptions& options, const Sweep& sweep);
/// Utilization of all links in one run, by kind of link. SVG.
std::string link_heatmap(const Network& network, const Simulation& simulation, const std::string& title);
/// Trace events, as Perfetto and chrome://tracing open them: a process a rank, a thread a lane.
std::string trace_json(const std::vector<SimulatedSpan>& spans);

/// Sizes between which the fastest algorithm changes: interpolated on the lines of both (log-log).
struct Crossing {
  double bytes = 0;
  const Algorithm* below = nullptr;
  const Algorithm* above = nullptr;
};
std::vector<Crossing> crossings(const SweepOptions& options, const Sweep& sweep);

/// --cluster, --ranks (0: all slots), --order (slot, host, first or random, by --seed): machine, placement
/// and what they make. Errors name the option.
Status lay_out(const std::string& cluster, int ranks, const std::string& order, std::uint64_t seed,
               SweepOptions* options);
/// Topology and structure of the options' machine and placement.
void recognize_ranks(SweepOptions* options);

/// Cores that this process may use.
int allowed_cores();

/// "1G", "1K,1M", "1K..4G" (doubling, the end included), "1K..4G*4": ascending. Errors name `option`.
Result<std::vector<double>> parse_sizes(const std::string& text, const char* option);

/// "1.5G", "96K", "3.3M": a size with three digits.
std::string short_bytes(double bytes);
/// "12.3 us", "4.56 ms".
std::string short_time(double seconds);

}  // namespace tamaki::tools
