// tamaki perf --tune: the measured times that choices are corrected by.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/options.hpp"
#include "bindings/c/handles.hpp"
#include "command.hpp"
#include "perf/bench.hpp"
#include "select/select.hpp"
#include "select/tuning.hpp"
#include "simulate/sweep.hpp"

namespace tamaki::tools {
namespace {

/// A candidate that takes so many times the best of those before it, at two sizes in a row, is not measured
/// further up: times over sizes do not cross that far.
constexpr double kHopeless = 8;
constexpr double kRepetitionS = 0.03;  // longer repetitions tell no more

std::string rule_of(const Candidate& c) {
  std::string text(c.algorithm->name);
  if (c.uses_lanes) text += fmt::format("/lanes={}", c.problem.lanes);
  if (c.uses_pieces) text += fmt::format("/pieces={}", c.problem.pieces);
  if (c.uses_radix) text += fmt::format("/radix={}", c.problem.radix);
  return text;
}

class Tuner {
 public:
  explicit Tuner(const PerfOptions& options) : options_(options), bench_(options_) {}
  Status run();
  int rank() const { return bench_.header().rank; }

 private:
  Status prepare();
  Status measure(const Candidate& candidate, Curve* curve);
  Result<double> measure_size(tmkComm_t comm, const Shape& shape);
  void tell(std::size_t at, const Candidate& candidate) const;
  std::string report() const;
  Shape shape(std::size_t bytes) const {
    return make_shape(options_.kind, options_.types.front(), options_.ops.front(), options_.root,
                      bench_.header().rank, bench_.header().ranks, bytes);
  }

  PerfOptions options_;  // before bench_, which reads the iterations from it
  Bench bench_;
  Costs* costs_ = nullptr;
  std::vector<Candidate> candidates_;
  std::vector<Curve> curves_;
  std::map<double, double> best_;  // seconds at each size
};

Status Tuner::prepare() {
  if (Status joined = bench_.join(); !joined) return joined;
  costs_ = bench_.comm()->impl->costs();
  if (costs_ == nullptr) return fail(Code::invalid_usage, "--tune: it is not known where the ranks are");
  const Collective collective = collective_of(options_.kind);
  const Topology& topology = costs_->topology();
  std::string why;
  for (const Algorithm* algorithm : all_algorithms())
    if (algorithm->collective == collective)
      for (const Candidate& c :
           candidates(topology, *algorithm, options_.root, choice_wishes(topology), &why))
        candidates_.push_back(c);
  return bench_.allocate();
}

Result<double> Tuner::measure_size(tmkComm_t comm, const Shape& shape) {
  // All ranks see the slowest rank's time and so count alike.
  const int wanted = options_.iterations, repetitions = options_.repetitions;
  options_.iterations = options_.repetitions = 1;
  Result<Timing> first = bench_.measure_on(comm, shape);
  options_.iterations = wanted;
  options_.repetitions = repetitions;
  if (!first) return pass(std::move(first));
  const double fit = kRepetitionS / std::max(1e-9, first->median_us * 1e-6);
  options_.iterations = std::clamp(static_cast<int>(std::min(fit, 1e6)), 1, wanted);
  Result<Timing> timing = bench_.measure_on(comm, shape);
  options_.iterations = wanted;
  if (!timing) return pass(std::move(timing));
  return timing->median_us * 1e-6;
}

Status Tuner::measure(const Candidate& candidate, Curve* curve) {
  const std::string rule = rule_of(candidate);
  tmkConfig_t config = TMK_CONFIG_INIT;
  config.algorithm = rule.c_str();
  tmkComm_t comm = nullptr;
  if (const tmkResult_t made = tmkCommSplit(bench_.comm(), 0, rank(), &comm, &config); made != tmkSuccess)
    return library_error(bench_.comm(), made, "a communicator for " + rule);
  Status status;
  int hopeless = 0;
  for (const std::size_t bytes : options_.sizes) {
    const Shape s = shape(bytes);
    const auto n = static_cast<double>(s.bytes);
    if (hopeless == 2 || (!curve->points.empty() && curve->points.back().bytes >= n)) continue;
    const Result<double> seconds = measure_size(comm, s);
    if (!seconds) {
      status = tl::unexpected<Error>(seconds.error());
      break;
    }
    curve->points.push_back({n, *seconds});
    const auto [best, first] = best_.try_emplace(n, *seconds);
    best->second = std::min(best->second, *seconds);
    hopeless = *seconds > kHopeless * best->second ? hopeless + 1 : 0;
  }
  (void)tmkCommDestroy(comm);
  return status;
}

void Tuner::tell(std::size_t at, const Candidate& candidate) const {
  if (rank() != 0) return;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  fmt::print(stderr, "{}# {} of {}: {}{}", terminal ? "\r\033[K" : "", at + 1, candidates_.size(),
             rule_of(candidate), terminal ? "" : "\n");
}

/// Of each size: the fastest, and what the choice without measurements would have been.
std::string Tuner::report() const {
  const Collective collective = collective_of(options_.kind);
  std::string text = fmt::format(
      "# {}, {} ranks on {} ({}); {} candidates, times of the slowest rank\n", name_of(options_.kind),
      bench_.header().ranks, bench_.header().hosts.front(), bench_.header().transports, candidates_.size());
  text += fmt::format("#{:>9}  {:<34} {:>10}  {:<34} {:>10} {:>8}\n", "bytes", "fastest", "time",
                      "without tuning", "time", "x fastest");
  for (const auto& [bytes, least] : best_) {
    const Curve* fastest = nullptr;
    for (const Curve& curve : curves_)
      if (curve.covers(bytes) && curve.at(bytes) <= least) fastest = &curve;
    if (fastest == nullptr) continue;
    const Question question{.collective = collective,
                            .bytes = static_cast<std::uint64_t>(bytes),
                            .ranks = bench_.header().ranks,
                            .root = options_.root,
                            .topology = &costs_->topology(),
                            .costs = costs_};
    std::string name = "-", time = "-", ratio = "-";
    if (const Result<Choice> choice = select(question)) {
      name = choice->algorithm->name;
      for (const Curve& curve : curves_) {
        if (!curve.candidate.is(choice->algorithm, choice->problem)) continue;
        name = rule_of(curve.candidate);
        if (!curve.covers(bytes)) continue;
        time = short_time(curve.at(bytes));
        ratio = fmt::format("{:.2f}", curve.at(bytes) / least);
      }
    }
    text += fmt::format("{:>10}  {:<34} {:>10}  {:<34} {:>10} {:>8}\n", bytes, rule_of(fastest->candidate),
                        short_time(least), name, time, ratio);
  }
  return text;
}

Status Tuner::run() {
  if (Status ready = prepare(); !ready) return ready;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    tell(i, candidates_[i]);
    Curve curve{.candidate = candidates_[i]};
    if (Status measured = measure(candidates_[i], &curve); !measured) return measured;
    if (!curve.points.empty()) curves_.push_back(std::move(curve));
  }
  if (rank() != 0) return {};
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  costs_->set_measured(collective_of(options_.kind),
                       {});  // the report is on the choice without what was measured before
  fmt::print("{}", report());
  TuningTable table;
  for (const Curve& curve : curves_)
    table.rows.push_back(tuning_row(*costs_, curve, Estimate::Origin::measured));
  const std::string path = options_.tune == "auto" ? tuning_path("auto") : options_.tune;
  if (path.empty())
    return fail(Code::invalid_argument, "--tune: auto needs XDG_CACHE_HOME or HOME; give a path");
  if (Status merged = merge_tuning(path, table); !merged) return merged;
  fmt::print("# {} rows added to {}\n", table.rows.size(), path);
  return {};
}

}  // namespace

int run_tune(const PerfOptions& options) {
  Tuner tuner(options);
  const Status status = tuner.run();
  if (status) return kOk;
  std::fflush(stdout);
  fmt::print(stderr, "tamaki perf: rank {}: {}\n", tuner.rank(), status.error().message);
  return status.error().code == Code::invalid_argument ? kUsage : kRuntime;
}

}  // namespace tamaki::tools
