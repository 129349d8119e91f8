#include "simulate/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "simulate/side_by_side.hpp"

namespace tamaki::tools {
namespace {

struct Task {
  std::size_t row = 0, curve = 0;
  Candidate candidate;
};

/// A candidate whose programs are built, and what is left to time.
struct Prepared {
  Task task;
  std::unique_ptr<Network> network;
  std::optional<TimedSchedule> schedule;
  std::atomic<bool> failed{false};
  std::atomic<std::size_t> left{0};
};

/// The programs of a candidate: of one communicator, or of all groups at once.
Result<ProgramSource> programs_of(const SweepOptions& options, const Candidate& candidate) {
  if (options.groups.empty())
    return ProgramSource([&options, candidate](std::int32_t rank) {
      return candidate.algorithm->build(options.topology, candidate.problem, rank);
    });
  for (std::size_t g = 0; g < options.groups.size(); ++g)
    if (candidate.algorithm->refuses != nullptr)
      if (std::string reason = candidate.algorithm->refuses(options.topologies[g], candidate.problem);
          !reason.empty())
        return fail(Code::invalid_argument, fmt::format("group {}: {}", g, reason));
  return side_by_side(options.placement.size(), options.groups,
                      [&options, candidate](std::int32_t group, std::int32_t member) {
                        return candidate.algorithm->build(
                            options.topologies[static_cast<std::size_t>(group)], candidate.problem, member);
                      });
}

double simulated_bytes(const SweepOptions& options, double bytes) {
  return options.groups.empty() ? bytes
                                : bytes_side_by_side(options.algorithms.front()->collective, bytes,
                                                     options.placement.size(), options.ranks());
}

/// Threads build candidates and time each size of them; what is built is timed first, so that few schedules
/// are kept at a time.
class Runner {
 public:
  Runner(const SweepOptions& options, const std::function<void(const std::string&, int, int)>& progress,
         Sweep* sweep)
      : options_(options), progress_(progress), sweep_(*sweep) {}

  void add(std::size_t row, const Candidate& candidate) {
    tasks_.push_back({row, sweep_.curves.size(), candidate});
    sweep_.curves.push_back({.candidate = candidate});
  }

  Status run() {
    std::vector<std::thread> threads;
    for (int t = 1; t < std::max(1, options_.threads); ++t) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  struct Timing {
    std::shared_ptr<Prepared> prepared;
    std::size_t size = 0;
    int slices = 1;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!timings_.empty()) {
        const Timing timing = std::move(timings_.front());
        timings_.pop_front();
        lock.unlock();
        time(timing);
        lock.lock();
      } else if (next_ < tasks_.size() && !error_) {
        const Task& task = tasks_[next_++];
        ++building_;
        lock.unlock();
        build(task);
        lock.lock();
        --building_;
        more_.notify_all();
      } else if (building_ > 0) {
        more_.wait(lock);
      } else {
        return;
      }
    }
  }

  void tell(const Task& task, const std::string& what) {
    const std::scoped_lock lock(mutex_);
    const std::string parameters = task.candidate.parameters(1);
    progress_(fmt::format("{}{}{}: {}", task.candidate.algorithm->name, parameters.empty() ? "" : ", ",
                          parameters, what),
              done_, static_cast<int>(tasks_.size()));
  }

  void build(const Task& task) {
    tell(task, "building");
    auto prepared = std::make_shared<Prepared>();
    prepared->task = task;
    Result<std::unique_ptr<Network>> network =
        Network::of(options_.machine, options_.placement, options_.network);
    if (!network) {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = network.error();
      return;
    }
    prepared->network = std::move(*network);
    const Result<ProgramSource> program = programs_of(options_, task.candidate);
    Program first;
    if (program && options_.slot_bytes != 0) first = (*program)(0);
    Result<TimedSchedule> schedule = program
                                         ? TimedSchedule::of(*prepared->network, *program)
                                         : Result<TimedSchedule>(tl::unexpected<Error>(program.error()));
    const std::scoped_lock lock(mutex_);
    if (!schedule) {
      sweep_.rows[task.row].refused = sweep_.curves[task.curve].why_not = schedule.error().message;
      ++done_;
      return;
    }
    prepared->schedule.emplace(std::move(*schedule));
    for (std::size_t i = 0; i < options_.sizes.size(); ++i)
      for (const int slices : slices_at(first, i)) {
        timings_.push_back({prepared, i, slices});
        ++prepared->left;
      }
  }

  void time(const Timing& timing) {
    Prepared& prepared = *timing.prepared;
    const Task& task = prepared.task;
    if (!prepared.failed) {
      tell(task, short_bytes(options_.sizes[timing.size]));
      Result<Simulation> made = prepared.schedule->run(
          {.bytes = simulated_bytes(options_, options_.sizes[timing.size]), .slices = timing.slices});
      const std::scoped_lock lock(mutex_);
      if (made) {
        keep(task, timing, std::move(*made));
      } else {
        prepared.failed = true;
        sweep_.rows[task.row].refused = sweep_.curves[task.curve].why_not = made.error().message;
      }
    }
    const std::scoped_lock lock(mutex_);
    if (--prepared.left == 0) ++done_;
  }

  std::vector<int> slices_at(const Program& first, std::size_t size) const {
    if (options_.slot_bytes == 0) return options_.slices;
    return {slices_of(first, options_.sizes[size], options_.slot_bytes)};
  }

  void keep(const Task& task, const Timing& timing, Simulation made) {
    std::vector<Curve::Point>& points = sweep_.curves[task.curve].points;
    const auto at = std::lower_bound(points.begin(), points.end(), options_.sizes[timing.size],
                                     [](const Curve::Point& p, double bytes) { return p.bytes < bytes; });
    if (at == points.end() || at->bytes != options_.sizes[timing.size])
      points.insert(at, {options_.sizes[timing.size], made.seconds});
    else
      at->seconds = std::min(at->seconds, made.seconds);
    SweepCell& cell = sweep_.rows[task.row].cells[timing.size];
    // Candidates end in any order: of equals the one with the smaller parameters is kept.
    const auto key = [](const Candidate& c, int s) {
      return std::tuple(c.problem.lanes, c.problem.pieces, c.problem.radix, s);
    };
    const bool better = !cell.done || made.seconds < cell.simulation.seconds * (1 - 1e-9) ||
                        (made.seconds <= cell.simulation.seconds * (1 + 1e-9) &&
                         key(task.candidate, timing.slices) < key(cell.candidate, cell.slices));
    if (!better) return;
    made.rank_seconds = {};
    if (timing.size + 1 < options_.sizes.size()) made.link_bytes = {};  // only the last is shown as a map
    cell = {true, timing.slices, task.candidate, std::move(made)};
  }

  const SweepOptions& options_;
  const std::function<void(const std::string&, int, int)>& progress_;
  Sweep& sweep_;
  std::vector<Task> tasks_;
  std::mutex mutex_;  // of all that follows, of progress_ and of the sweep
  std::condition_variable more_;
  std::deque<Timing> timings_;
  std::size_t next_ = 0;
  int building_ = 0, done_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Sweep> run_sweep(const SweepOptions& options,
                        const std::function<void(const std::string&, int, int)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  Sweep sweep;
  Runner runner(options, progress, &sweep);
  for (const Algorithm* algorithm : options.algorithms) {
    SweepRow row{.algorithm = algorithm};
    row.cells.resize(options.sizes.size());
    for (const Candidate& candidate :
         candidates(options.topology, *algorithm, options.root, options.wishes, &row.refused))
      runner.add(sweep.rows.size(), candidate);
    if (!row.refused.empty())
      sweep.curves.push_back(
          {.candidate = {.algorithm = algorithm,
                         .problem = {.collective = algorithm->collective, .ranks = options.ranks()}},
           .why_not = row.refused});
    sweep.rows.push_back(std::move(row));
  }
  const Result<std::unique_ptr<Network>> network = Network::of(
      options.machine,
      options.groups.empty() ? options.placement : restrict_to(options.placement, options.groups.front()),
      options.network);
  if (!network) return tl::unexpected<Error>(network.error());
  for (const double bytes : options.sizes)
    sweep.bounds.push_back(lower_bound_s(**network, options.algorithms.front()->collective, bytes));
  if (Status ran = runner.run(); !ran) return tl::unexpected<Error>(ran.error());
  for (SweepRow& row : sweep.rows)  // a candidate that failed does not hide one that did not
    if (std::any_of(row.cells.begin(), row.cells.end(), [](const SweepCell& cell) { return cell.done; }))
      row.refused.clear();
  sweep.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return sweep;
}

Result<Simulation> time_with_spans(const SweepOptions& options, const Candidate& candidate, double bytes,
                                   int slices, std::vector<SimulatedSpan>* spans) {
  const Result<std::unique_ptr<Network>> network =
      Network::of(options.machine, options.placement, options.network);
  if (!network) return tl::unexpected<Error>(network.error());
  const Result<ProgramSource> program = programs_of(options, candidate);
  if (!program) return tl::unexpected<Error>(program.error());
  return simulate(**network, *program,
                  {.bytes = simulated_bytes(options, bytes),
                   .slices = slices,
                   .most_messages = 2'000'000,
                   .spans = spans},
                  AlikeRanks::apart);
}

int Sweep::best(std::size_t size) const {
  int found = -1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SweepCell& cell = rows[r].cells[size];
    if (cell.done &&
        (found < 0 ||
         cell.simulation.seconds < rows[static_cast<std::size_t>(found)].cells[size].simulation.seconds))
      found = static_cast<int>(r);
  }
  return found;
}

std::vector<Crossing> crossings(const SweepOptions& options, const Sweep& sweep) {
  std::vector<Crossing> all;
  for (std::size_t i = 1; i < options.sizes.size(); ++i) {
    const int a = sweep.best(i - 1), b = sweep.best(i);
    if (a < 0 || b < 0 || a == b) continue;
    const auto time = [&](int row, std::size_t size) {
      return sweep.rows[static_cast<std::size_t>(row)].cells[size].simulation.seconds;
    };
    const bool both = sweep.rows[static_cast<std::size_t>(a)].cells[i].done &&
                      sweep.rows[static_cast<std::size_t>(b)].cells[i - 1].done;
    double part = 0.5;  // of the way between the sizes, both logarithmic
    if (both) {
      const double before = std::log(time(b, i - 1) / time(a, i - 1)),
                   after = std::log(time(a, i) / time(b, i));
      if (before + after > 0) part = before / (before + after);
    }
    const double x0 = std::max(1.0, options.sizes[i - 1]);
    all.push_back({x0 * std::pow(options.sizes[i] / x0, part),
                   sweep.rows[static_cast<std::size_t>(a)].algorithm,
                   sweep.rows[static_cast<std::size_t>(b)].algorithm});
  }
  return all;
}

}  // namespace tamaki::tools
