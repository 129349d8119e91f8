// Proofs of algorithms: builds the programs of all ranks and holds them against every promise of the
// algorithm.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/fuse.hpp"
#include "schedule/logical.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

/// Beyond that, the order of accesses is proved with all chunks filled only: a matter of time.
constexpr int kMostRanksForEmptyChunks = 24;

struct Mode {
  const char* name;
  bool in_place, direct;
};

std::vector<Program> build_all(const Algorithm& algorithm, const Topology& topology,
                               const Problem& problem) {
  std::vector<Program> programs;
  programs.reserve(problem.ranks);
  for (int rank = 0; rank < problem.ranks; ++rank)
    programs.push_back(algorithm.build(topology, problem, rank));
  return programs;
}

class Prover {
 public:
  Prover(const Algorithm& algorithm, const Problem& problem, const ProofOptions& options)
      : algorithm_(algorithm), problem_(problem), options_(options) {
    report_.subject = describe(algorithm, problem);
    report_.ordered = report_.canonical = report_.uneven = report_.pairwise_sizes = true;
  }

  Report run() {
    if (problem_.ranks < 1 || problem_.root < 0 || problem_.root >= problem_.ranks ||
        algorithm_.build == nullptr) {
      say(fmt::format("no such problem: {} ranks, root {}", problem_.ranks, problem_.root));
      return std::move(report_);
    }
    const Topology topology =
        options_.topology.ranks() == problem_.ranks ? options_.topology : Topology::flat(problem_.ranks);
    if (const std::string reason =
            algorithm_.refuses ? algorithm_.refuses(topology, problem_) : std::string();
        !reason.empty()) {
      say("the algorithm refuses this problem: " + reason);
      return std::move(report_);
    }
    return run(build_all(algorithm_, topology, problem_));
  }

  Report run(std::vector<Program> programs) {
    if (programs.empty()) {
      say("there are no programs");
      return std::move(report_);
    }
    header(programs[0]);
    if (report_.ok()) prove(programs, "");
    if (!report_.ok() || !options_.fused) return std::move(report_);
    bool changed = false;
    for (Program& program : programs) {
      Program fused = fuse(program);
      changed = changed || fused.steps.size() != program.steps.size();
      program = std::move(fused);
    }
    if (changed) prove(programs, "fused");
    return std::move(report_);
  }

 private:
  void say(std::string text) { report_.findings.push_back({.text = std::move(text)}); }

  /// The programs are of the problem that was asked for.
  void header(const Program& p) {
    if (p.collective != algorithm_.collective || p.algorithm != algorithm_.name)
      say(fmt::format("the program says that it is \"{} {}\"",
                      static_cast<int>(p.collective) < kCollectives ? name_of(p.collective) : "?",
                      p.algorithm));
    if (p.ranks != problem_.ranks) say(fmt::format("the program is for {} ranks", p.ranks));
    if (has_root(algorithm_.collective) && p.root != problem_.root)
      say(fmt::format("the program is for root {}", p.root));
  }

  void prove(const std::vector<Program>& programs, const char* form) {
    std::vector<Mode> modes;
    if (algorithm_.direct_safe)
      modes.push_back({"out of place, direct", false, true});
    else
      modes.push_back({"out of place", false, false});
    if (algorithm_.direct_in_place_safe)
      modes.push_back({"in place, direct", true, true});
    else if (algorithm_.in_place_safe)
      modes.push_back({"in place", true, false});
    for (const Mode& mode : modes) {
      VerifyOptions v{.in_place = mode.in_place,
                      .direct = mode.direct,
                      .keeps_order = algorithm_.keeps_order && !problem_.commutative,
                      .canonical = algorithm_.canonical,
                      .uneven = algorithm_.uneven_safe,
                      .pairwise_sizes = algorithm_.pairwise_sizes,
                      .empty_chunks = problem_.ranks <= kMostRanksForEmptyChunks,
                      .limit = options_.limit};
      Report one = verify(programs, v);
      report_.steps = std::max(report_.steps, one.steps);
      report_.messages = std::max(report_.messages, one.messages);
      report_.proofs += 1;
      report_.ordered = report_.ordered && one.ordered;
      report_.canonical = report_.canonical && one.canonical;
      report_.uneven = report_.uneven && one.uneven;
      report_.pairwise_sizes = report_.pairwise_sizes && one.pairwise_sizes;
      const std::string label = fmt::format("[{}{}{}] ", form, *form ? ", " : "", mode.name);
      for (Finding& finding : one.findings) {
        if (report_.findings.size() >= options_.limit) return;
        finding.text = label + finding.text;
        report_.findings.push_back(std::move(finding));
      }
      if (!report_.ok()) return;
    }
  }

  const Algorithm& algorithm_;
  const Problem& problem_;
  const ProofOptions& options_;
  Report report_;
};

std::vector<int> roots_of(const Algorithm& algorithm, int ranks) {
  std::vector<int> roots;
  if (!has_root(algorithm.collective)) return {0};
  if (ranks <= 8)
    for (int r = 0; r < ranks; ++r) roots.push_back(r);
  else if (ranks <= 64)
    roots = {0, 1, ranks / 2, ranks - 1};
  else
    roots = {0, ranks - 1};
  return roots;
}

}  // namespace

std::string describe(const Algorithm& algorithm, const Problem& problem) {
  std::string text = fmt::format("{} {}, {} rank{}", name_of(algorithm.collective), algorithm.name,
                                 problem.ranks, problem.ranks == 1 ? "" : "s");
  if (has_root(algorithm.collective)) text += fmt::format(", root {}", problem.root);
  if (problem.lanes != 1) text += fmt::format(", {} lanes", problem.lanes);
  if (problem.radix != 2) text += fmt::format(", radix {}", problem.radix);
  if (problem.pieces != 1) text += fmt::format(", {} pieces", problem.pieces);
  if (!problem.commutative) text += ", not commutative";
  return text;
}

Report verify_algorithm(const Algorithm& algorithm, const Problem& problem, const ProofOptions& options) {
  return Prover(algorithm, problem, options).run();
}

Report verify_programs(const Algorithm& algorithm, const Problem& problem,
                       const std::vector<Program>& programs, const ProofOptions& options) {
  return Prover(algorithm, problem, options).run(programs);
}

std::vector<Problem> default_problems(const Algorithm& algorithm, int max_ranks) {
  std::vector<int> counts;
  for (int p = 1; p <= std::min(max_ranks, 64); ++p) counts.push_back(p);
  for (int p : {65, 96, 127, 128, 129, 255, 256, 257, 512, 768, 1000, 1023, 1024})
    if (p <= max_ranks) counts.push_back(p);
  std::vector<Problem> problems;
  for (int p : counts)
    for (Problem& problem : problems_on(algorithm, Topology::flat(p))) problems.push_back(problem);
  return problems;
}

std::vector<Problem> problems_on(const Algorithm& algorithm, const Topology& topology) {
  const int p = topology.ranks();
  std::vector<Problem> problems;
  const auto refuses = [&](const Problem& problem) {
    return algorithm.refuses && !algorithm.refuses(topology, problem).empty();
  };
  const auto add = [&](Problem problem, const Problem* differs_from) {
    if (refuses(problem)) return;
    if (differs_from != nullptr && !refuses(*differs_from)) {
      // A wish that the algorithm ignores gives the same programs again.
      if (algorithm.build(topology, problem, 0) == algorithm.build(topology, *differs_from, 0) &&
          algorithm.build(topology, problem, p - 1) == algorithm.build(topology, *differs_from, p - 1))
        return;
    }
    problems.push_back(problem);
  };
  for (int root : roots_of(algorithm, p)) {
    const Problem plain{.collective = algorithm.collective, .ranks = p, .root = root};
    add(plain, nullptr);
    Problem other = plain;
    other.commutative = false;
    if (reduces(algorithm.collective) && algorithm.keeps_order) add(other, &plain);
    if (p > 64 || (p > 16 && p % 4 != 0) || (root != 0 && p > 8)) continue;
    if (topology != Topology::flat(p) && p > 8) continue;  // there are many topologies
    for (int lanes : {2, 3, 4, 8}) other = plain, other.lanes = lanes, add(other, &plain);
    for (int radix : {3, 4, 8}) other = plain, other.radix = radix, add(other, &plain);
    for (int pieces : {2, 3, 8}) other = plain, other.pieces = pieces, add(other, &plain);
    other = plain, other.lanes = 2, other.radix = 4, other.pieces = 2, add(other, &plain);
  }
  return problems;
}

}  // namespace tamaki
