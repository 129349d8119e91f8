// tamaki verify: proves schedules and reports.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "arguments.hpp"
#include "base/memory_limits.hpp"
#include "command.hpp"
#include "output_file.hpp"
#include "problem_set.hpp"
#include "schedule/check.hpp"
#include "schedule/json.hpp"
#include "verify/interpreter.hpp"
#include "verify/mutate.hpp"
#include "verify/places.hpp"
#include "verify/verify.hpp"

namespace tamaki::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct VerifyArguments {
  std::string collectives, algorithms, ranks, topology, roots = "some", json, file;
  int mutants = 0, jobs = 0;
  std::uint64_t seed = 1;
  bool verbose = false;
  bool blind = false;  // mutants are judged by the second opinion alone: tests that
};

constexpr const char* kFooter = R"(
For every order of execution: each result complete and right, each contribution in it exactly once; sends match
receives; nothing gets stuck, nothing is read before it is written, no two accesses race, nothing is out of bounds;
in place, direct, in order and reproducible where the algorithm promises it.

Without --ranks: 1..64 ranks and some counts up to 1,024, all roots of few ranks, with the lanes, radices and pieces
that change the schedule; and, for algorithms that depend on where the ranks are, tori and meshes with sides 1..7, hosts
of equal and of different sizes, and rails, up to 512 ranks. --topology is one of torus:4x4x2, mesh:4x4, grid:4x4mx2:p6
(m: does not wrap; p: ports), hosts:4+4+2, hosts:4x2:n2 (n: NUMA domains), rails:4x8, flat:8. --mutants puts seeded faults into schedules of 2 to 6 ranks, one at a time, and counts those
that the proof rejects. One that it accepts is run by an interpreter that shares no code with the proof, in many
orders: if that finds nothing, the mutant happens to mean the same ("equivalent", listed with --verbose); if it finds
fault, the proof itself is wrong, which is said and ends with status 1.

Examples:
  tamaki verify
  tamaki verify --collective allreduce --algorithm ring --ranks 1..16,100
  tamaki verify --collective reduce --ranks 1..12 --roots all --mutants 500 --json report.json
  tamaki verify --algorithm torus --topology torus:4x3x2
  tamaki verify --file schedule.json

Exit status: 0 all proved, 1 findings, or a mutant that the proof should not have accepted, 2 wrong usage, 3 a file cannot
be read or written, or memory is short.)";

struct Task {
  const Algorithm* algorithm = nullptr;
  Problem problem;
  std::shared_ptr<const NamedTopology> place;  // null: all ranks on one host

  Topology topology() const { return place ? place->topology : Topology::flat(problem.ranks); }
  std::string text() const {
    return describe(*algorithm, problem) + (place ? " on " + place->name : std::string());
  }
};

struct Tally {  // of one algorithm
  std::int64_t problems = 0, proofs = 0, steps = 0, messages = 0;
  int least = 0, most = 0;
  std::vector<std::string> findings;
  std::int64_t left = 0;  // tasks
};

struct MutantTally {
  std::int64_t rejected = 0, unchanged = 0;
  std::vector<std::string> equivalent;  // accepted, and the interpreter finds nothing
  std::vector<std::string> missed;      // accepted, and it does: a defect of the proof
};

Result<std::vector<Task>> tasks_of(const VerifyArguments& a,
                                   const std::vector<const Algorithm*>& algorithms) {
  std::vector<int> counts;
  if (!a.ranks.empty()) {
    Result<std::vector<int>> parsed = parse_numbers(a.ranks, "--ranks");
    if (!parsed) return pass(std::move(parsed));
    counts = std::move(*parsed);
  }
  std::vector<std::shared_ptr<const NamedTopology>> places;
  if (!a.topology.empty()) {
    std::string error;
    const Topology topology = parse_place(a.topology, &error);
    if (!error.empty()) return fail(Code::invalid_argument, "--topology " + error);
    places.push_back(std::make_shared<const NamedTopology>(NamedTopology{a.topology, topology}));
  } else {
    for (NamedTopology& place : proof_places(counts.empty() ? 512 : counts.back()))
      if (counts.empty() || std::binary_search(counts.begin(), counts.end(), place.topology.ranks()))
        places.push_back(std::make_shared<const NamedTopology>(std::move(place)));
  }
  std::vector<Task> tasks;
  for (const Algorithm* algorithm : algorithms) {
    if (algorithm->uses_topology || !a.topology.empty())
      for (const auto& place : places)
        for (const Problem& problem : problems_on(*algorithm, place->topology))
          tasks.push_back({algorithm, problem, place});
    if (!a.topology.empty()) continue;
    std::set<std::pair<int, int>> plain;  // (ranks, root) with no other wishes
    const auto add = [&](const Problem& problem) {
      const bool ordinary =
          problem.lanes == 1 && problem.radix == 2 && problem.pieces == 1 && problem.commutative;
      if (ordinary && !plain.emplace(problem.ranks, problem.root).second) return;
      if (algorithm->refuses(Topology::flat(problem.ranks), problem).empty())
        tasks.push_back({algorithm, problem, nullptr});
    };
    const int most = counts.empty() ? 1024 : counts.back();
    std::set<int> seen;
    for (const Problem& problem : default_problems(*algorithm, most)) {
      if (!counts.empty() && !std::binary_search(counts.begin(), counts.end(), problem.ranks)) continue;
      add(problem);
      seen.insert(problem.ranks);
    }
    for (const int ranks : counts) add({.collective = algorithm->collective, .ranks = ranks});
    if (a.roots == "all" && has_root(algorithm->collective)) {
      if (counts.empty()) counts.assign(seen.begin(), seen.end());
      for (const int ranks : counts)
        for (int root = 0; root < ranks; ++root)
          add({.collective = algorithm->collective, .ranks = ranks, .root = root});
      if (a.ranks.empty()) counts.clear();
    }
  }
  return tasks;
}

/// Why no algorithm is left: the reasons of the first few, for the first number of ranks.
std::string nobody_serves(const VerifyArguments& a, const std::vector<const Algorithm*>& algorithms) {
  constexpr std::size_t kNamed = 4;
  std::string text =
      fmt::format("--ranks {}: none of the chosen algorithms serves these numbers of ranks", a.ranks);
  const Result<std::vector<int>> ranks = parse_numbers(a.ranks, "--ranks");
  for (std::size_t i = 0; ranks && i < std::min(kNamed, algorithms.size()); ++i)
    text += fmt::format(
        "{} {} {} on {}: {}", i == 0 ? ";" : ",", name_of(algorithms[i]->collective), algorithms[i]->name,
        ranks->front(),
        algorithms[i]->refuses(Topology::flat(ranks->front()),
                               {.collective = algorithms[i]->collective, .ranks = ranks->front()}));
  return text;
}

/// Whether memory holds the proof of a schedule of very many ranks, going by the steps of rank 0.
Status room_for(const Task& task) {
  constexpr int kOrdinary = 1024;
  constexpr std::uint64_t kBytesPerStep =
      256;  // unrolled for two slices, with its operands and what is noted of them
  if (task.problem.ranks <= kOrdinary) return {};
  const Program first = task.algorithm->build(task.topology(), task.problem, 0);
  std::uint64_t steps = 0;
  for (std::size_t lane = 0; lane < first.lanes.size(); ++lane)
    steps += static_cast<std::uint64_t>(expanded_steps(first, static_cast<std::int32_t>(lane)));
  return check_memory(steps * static_cast<std::uint64_t>(task.problem.ranks) * kBytesPerStep,
                      "the proof of " + task.text());
}

class Prover {
 public:
  Prover(const VerifyArguments& arguments, std::vector<Task> tasks)
      : arguments_(arguments), tasks_(std::move(tasks)) {
    for (const Task& task : tasks_) {
      Tally& tally = tallies_[task.algorithm];
      if (tally.left++ == 0) order_.push_back(task.algorithm);
    }
    // Large ones first, so that no thread is left with them at the end.
    std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& x, const Task& y) {
      return std::find(order_.begin(), order_.end(), x.algorithm) <
             std::find(order_.begin(), order_.end(), y.algorithm);
    });
  }

  void run() {
    int jobs = arguments_.jobs > 0 ? arguments_.jobs
                                   : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    jobs = std::min<int>(jobs, static_cast<int>(tasks_.size()));
    std::vector<std::thread> threads;
    for (int i = 1; i < jobs; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
  }

  /// Out of memory, or nothing.
  const Status& trouble() const { return trouble_; }
  int report() const;
  nlohmann::json json() const;
  std::map<MutationKind, MutantTally> mutants;

 private:
  void work() {
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_.size();) {
      const Task& task = tasks_[i];
      Report report;
      Status status = room_for(task);
      try {
        if (status) report = verify_algorithm(*task.algorithm, task.problem, {.topology = task.topology()});
      } catch (const std::bad_alloc&) {
        status = fail(Code::out_of_memory, "no memory left at " + task.text());
      }
      const std::lock_guard lock(mutex_);
      if (!status && trouble_) trouble_ = std::move(status);
      if (!trouble_) return next_.store(tasks_.size(), std::memory_order_relaxed);
      Tally& tally = tallies_[task.algorithm];
      ++tally.problems;
      tally.proofs += report.proofs;
      tally.steps += report.steps;
      tally.messages += report.messages;
      tally.least = tally.least == 0 ? task.problem.ranks : std::min(tally.least, task.problem.ranks);
      tally.most = std::max(tally.most, task.problem.ranks);
      for (const Finding& finding : report.findings)
        tally.findings.push_back(task.text() + ": " + text_of(finding));
      ++done_;
      if (--tally.left == 0)
        show(task.algorithm, tally);
      else if (Clock::now() - last_news_ > std::chrono::seconds(5))
        news(task.algorithm);
    }
  }

  void news(const Algorithm* algorithm) {
    last_news_ = Clock::now();
    std::fflush(stdout);
    fmt::print(stderr, "# {} of {} problems, at {} {}\n", done_, tasks_.size(),
               name_of(algorithm->collective), algorithm->name);
  }

  void show(const Algorithm* algorithm, const Tally& t) {
    last_news_ = Clock::now();
    if (arguments_.json == "-") return;
    fmt::print("{:<15} {:<20} {:>4}..{:<5} {:>6} problems {:>7} proofs {:>12} steps  {}\n",
               name_of(algorithm->collective), algorithm->name, t.least, t.most, t.problems, t.proofs,
               t.steps, t.findings.empty() ? "proved" : fmt::format("{} FINDINGS", t.findings.size()));
    for (const std::string& finding : t.findings) fmt::print("    {}\n", finding);
    std::fflush(stdout);
  }

  const VerifyArguments& arguments_;
  std::vector<Task> tasks_;
  std::vector<const Algorithm*> order_;
  std::map<const Algorithm*, Tally> tallies_;
  std::mutex mutex_;  // of tallies_, what follows, and stdout
  Status trouble_;
  std::size_t done_ = 0;
  Clock::time_point last_news_ = Clock::now();
  std::atomic<std::size_t> next_{0};
};

int Prover::report() const {
  std::int64_t problems = 0, proofs = 0, findings = 0;
  for (const auto& [algorithm, tally] : tallies_) {
    problems += tally.problems;
    proofs += tally.proofs;
    findings += static_cast<std::int64_t>(tally.findings.size());
  }
  std::int64_t rejected = 0, unchanged = 0, equivalent = 0, missed = 0;
  for (const auto& [kind, t] : mutants) {
    rejected += t.rejected, unchanged += t.unchanged;
    equivalent += static_cast<std::int64_t>(t.equivalent.size()),
        missed += static_cast<std::int64_t>(t.missed.size());
    if (arguments_.json == "-") continue;
    fmt::print("mutants: {:<18} {:>6} rejected {:>6} unchanged {:>6} equivalent\n", name_of(kind),
               t.rejected, t.unchanged, t.equivalent.size());
    if (arguments_.verbose)
      for (const std::string& text : t.equivalent) fmt::print("    equivalent: {}\n", text);
  }
  if (arguments_.json != "-") {
    if (!mutants.empty())
      fmt::print("mutants: {} rejected, {} unchanged, {} equivalent{}\n", rejected, unchanged, equivalent,
                 missed == 0 ? "" : fmt::format(", {} ACCEPTED THOUGH WRONG", missed));
    fmt::print("{} algorithms, {} problems, {} proofs: {}\n", tallies_.size(), problems, proofs,
               findings == 0 ? "all proved" : fmt::format("{} findings", findings));
  }
  std::fflush(stdout);
  for (const auto& [kind, t] : mutants)
    for (const std::string& text : t.missed)
      fmt::print(stderr, "tamaki verify: DEFECT OF THE PROOF: it accepts {}\n", text);
  return findings + missed == 0 ? kOk : kFinding;
}

nlohmann::json Prover::json() const {
  nlohmann::json j;
  j["algorithms"] = nlohmann::json::array();
  for (const Algorithm* algorithm : order_) {
    const Tally& t = tallies_.at(algorithm);
    j["algorithms"].push_back({{"collective", name_of(algorithm->collective)},
                               {"algorithm", algorithm->name},
                               {"problems", t.problems},
                               {"proofs", t.proofs},
                               {"steps", t.steps},
                               {"messages", t.messages},
                               {"ranks_min", t.least},
                               {"ranks_max", t.most},
                               {"findings", t.findings}});
  }
  for (const auto& [kind, t] : mutants)
    j["mutants"].push_back({{"kind", name_of(kind)},
                            {"rejected", t.rejected},
                            {"unchanged", t.unchanged},
                            {"equivalent", t.equivalent},
                            {"missed", t.missed}});
  return j;
}

/// Judges one mutant of `original`. `blind`: as if the proof accepted whatever can be run at all.
void judge(const Task& task, const std::vector<Program>& original, const std::vector<Program>& mutant,
           const Mutation& mutation, bool blind, MutantTally* tally) {
  const auto sound = [](const Program& program) { return check(program, 1).empty(); };
  const bool accepted = blind
                            ? std::all_of(mutant.begin(), mutant.end(), sound)
                            : verify_programs(*task.algorithm, task.problem, mutant, {.fused = false}).ok();
  if (!accepted) {
    ++tally->rejected;
    return;
  }
  bool unchanged = true;
  for (std::size_t r = 0; r < mutant.size() && unchanged; ++r)
    unchanged = normalized(unrolled(mutant[r])) == normalized(unrolled(original[r]));
  if (unchanged) {
    ++tally->unchanged;
    return;
  }
  const std::string text = describe(*task.algorithm, task.problem) + ", " + mutation.text;
  const std::string complaint = second_opinion(*task.algorithm, task.problem, mutant);
  if (complaint.empty())
    tally->equivalent.push_back(text);
  else
    tally->missed.push_back(fmt::format("{}; the interpreter finds: {}", text, complaint));
}

/// `a.mutants` seeded faults, spread over the algorithms and kinds of faults, in schedules of 2 to 6 ranks.
void try_mutants(const VerifyArguments& a, const std::vector<const Algorithm*>& algorithms,
                 std::map<MutationKind, MutantTally>* tallies) {
  constexpr int kRanks[] = {4, 3, 5, 2, 6};
  const auto most = std::int64_t{50} * a.mutants + 1000;  // not every kind of fault fits every schedule
  auto last_news = Clock::now();
  int made = 0;
  for (std::int64_t i = 0; made < a.mutants && i < most; ++i) {
    const Algorithm& algorithm = *algorithms[static_cast<std::size_t>(i) % algorithms.size()];
    const auto turn = i / static_cast<std::int64_t>(algorithms.size());
    const auto kind = static_cast<MutationKind>(turn % kMutationKinds);
    const Task task{&algorithm,
                    {.collective = algorithm.collective, .ranks = kRanks[turn / kMutationKinds % 5]},
                    nullptr};
    Result<std::vector<Program>> original = build_schedule(algorithm, task.problem);
    if (!original) continue;
    std::vector<Program> mutant = *original;
    const Mutation mutation = mutate(&mutant, kind, a.seed + static_cast<std::uint64_t>(i));
    if (mutation.text.empty()) continue;
    ++made;
    judge(task, *original, mutant, mutation, a.blind, &(*tallies)[kind]);
    if (Clock::now() - last_news < std::chrono::seconds(5)) continue;
    last_news = Clock::now();
    std::fflush(stdout);
    fmt::print(stderr, "# {} of {} mutants\n", made, a.mutants);
  }
}

int verify_file(const VerifyArguments& a, OutputFile* json) {
  Result<std::vector<Program>> programs = read_schedule(a.file);
  if (!programs) return report_error("verify", programs.error());
  const Report report = verify(*programs);
  if (a.json != "-")
    fmt::print("{}{}", report.text(), report.text().empty() || report.text().back() == '\n' ? "" : "\n");
  nlohmann::json j{{"file", a.file},
                   {"steps", report.steps},
                   {"messages", report.messages},
                   {"findings", nlohmann::json::array()}};
  for (const Finding& finding : report.findings) j["findings"].push_back(text_of(finding));
  if (Status written = json->write(j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return report_error("verify", written.error());
  return report.ok() ? kOk : kFinding;
}

int verify_all(const VerifyArguments& a) {
  OutputFile json;
  if (Status opened = json.open("--json", a.json); !opened) return report_error("verify", opened.error());
  if (!a.file.empty()) return verify_file(a, &json);
  Result<std::vector<const Algorithm*>> algorithms = find_algorithms(a.collectives, a.algorithms);
  if (!algorithms) return report_error("verify", algorithms.error());
  Result<std::vector<Task>> tasks = tasks_of(a, *algorithms);
  if (!tasks) return report_error("verify", tasks.error());
  if (tasks->empty())
    return report_error("verify", {Code::invalid_argument, Scope::request, nobody_serves(a, *algorithms)});
  Prover prover(a, std::move(*tasks));
  prover.run();
  if (!prover.trouble()) return report_error("verify", prover.trouble().error());
  if (a.mutants > 0) try_mutants(a, *algorithms, &prover.mutants);
  const int status = prover.report();
  if (Status written =
          json.write(prover.json().dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return report_error("verify", written.error());
  return status;
}

}  // namespace

void add_verify(CLI::App& app, int* status) {
  auto a = std::make_shared<VerifyArguments>();
  CLI::App* sub =
      app.add_subcommand("verify", "Prove schedules: right, complete, free of deadlocks and races");
  sub->footer(kFooter);
  auto* collective = sub->add_option("--collective", a->collectives, "collectives, comma-separated (all)")
                         ->check(not_empty());
  auto* algorithm = sub->add_option("--algorithm", a->algorithms, "algorithms, comma-separated (all)")
                        ->check(not_empty());
  auto* ranks = sub->add_option("--ranks", a->ranks, "numbers of ranks, e.g. 1..64,100 (the default set)")
                    ->check(not_empty());
  auto* topology = sub->add_option("--topology", a->topology, "where the ranks are, instead of many places")
                       ->check(not_empty())
                       ->excludes(ranks);
  auto* roots = sub->add_option("--roots", a->roots, "some, or all of every number of ranks")
                    ->check(CLI::IsMember({"some", "all"}))
                    ->capture_default_str();
  auto* mutants = sub->add_option("--mutants", a->mutants,
                                  "put in so many faults, one at a time, and count those that are found")
                      ->transform(whole_number(0, 10000000));
  sub->add_option("--seed", a->seed, "first seed of the faults")
      ->transform(whole_number(0, INT64_MAX))
      ->needs(mutants)
      ->capture_default_str();
  sub->add_option("-j,--jobs", a->jobs, "threads (one a core)")->transform(whole_number(1, 4096));
  sub->add_option("--json", a->json, "write the report to a file, or to stdout with - instead of text")
      ->check(not_empty());
  sub->add_option("--file", a->file, "prove the schedule of a JSON or MSCCL XML file (- for stdin) instead")
      ->check(not_empty())
      ->excludes(collective)
      ->excludes(algorithm)
      ->excludes(ranks)
      ->excludes(topology)
      ->excludes(roots)
      ->excludes(mutants);
  sub->add_flag("-v,--verbose", a->verbose, "list the mutants that mean the same");
  sub->add_flag("--blind", a->blind)->group("");
  sub->callback([=] { *status = verify_all(*a); });
}

}  // namespace tamaki::tools
