// Schedules with one fault put in: the proof must reject each one that changes the meaning. Which ones do
// not is judged by the reference interpreter, which knows nothing of the proof: it runs every mutant that
// was accepted in every mode that was proved, with many interleavings, and must find nothing.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "algorithms/algorithm.hpp"
#include "schedule/json.hpp"
#include "verify/interpreter.hpp"
#include "verify/mutate.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

std::vector<Program> build_all(const Algorithm& algorithm, const Problem& problem) {
  std::vector<Program> programs;
  for (int r = 0; r < problem.ranks; ++r)
    programs.push_back(algorithm.build(Topology::flat(problem.ranks), problem, r));
  return programs;
}

std::vector<Problem> problems(const Algorithm& algorithm) {
  std::vector<Problem> all;
  for (Problem q :
       {Problem{.ranks = 2}, Problem{.ranks = 4}, Problem{.ranks = 5, .root = 2, .commutative = false},
        Problem{.ranks = 3, .lanes = 2, .pieces = 2}, Problem{.ranks = 6, .lanes = 2, .radix = 3}}) {
    q.collective = algorithm.collective;
    if (!reduces(q.collective) || !algorithm.keeps_order) q.commutative = true;
    const bool rooted = q.collective == Collective::reduce || q.collective == Collective::broadcast ||
                        q.collective == Collective::gather || q.collective == Collective::scatter;
    if (!rooted) q.root = 0;
    if (algorithm.refuses(Topology::flat(q.ranks), q).empty()) all.push_back(q);
  }
  return all;
}

TEST(Mutation, everyChangeOfMeaningIsRejected) {
  constexpr int kSeeds = 3;
  int rejected = 0, equivalent = 0, same = 0;
  std::map<std::string, std::pair<int, int>> by_kind;  // rejected, equivalent
  for (const Algorithm* algorithm : all_algorithms())
    for (const Problem& problem : problems(*algorithm)) {
      const std::vector<Program> original = build_all(*algorithm, problem);
      ASSERT_TRUE(verify_programs(*algorithm, problem, original, {.fused = false}).ok())
          << describe(*algorithm, problem);
      for (int kind = 0; kind < kMutationKinds; ++kind)
        for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
          std::vector<Program> mutant = original;
          const Mutation mutation = mutate(&mutant, static_cast<MutationKind>(kind), seed);
          if (mutation.text.empty()) continue;
          const Report report = verify_programs(*algorithm, problem, mutant, {.fused = false});
          auto& counts = by_kind[name_of(mutation.kind)];
          if (!report.ok()) {
            EXPECT_NE(report.text().find(": "), std::string::npos);
            ++rejected, ++counts.first;
            continue;
          }
          bool unchanged = true;
          for (std::size_t r = 0; r < mutant.size() && unchanged; ++r)
            unchanged = normalized(unrolled(mutant[r])) == normalized(unrolled(original[r]));
          if (unchanged) {
            ++same;
            continue;
          }
          const std::string complaint = second_opinion(*algorithm, problem, mutant);
          EXPECT_EQ(complaint, "") << describe(*algorithm, problem) << ", seed " << seed << ": "
                                   << mutation.text << "\nwas accepted by the proof";
          ++equivalent, ++counts.second;
        }
    }
  std::printf("%d mutants rejected, %d accepted and confirmed equivalent, %d unchanged\n", rejected,
              equivalent, same);
  for (const auto& [kind, counts] : by_kind)
    std::printf("  %-18s %5d rejected %4d equivalent\n", kind.c_str(), counts.first, counts.second);
  EXPECT_GE(rejected, 500);
}

TEST(Mutation, sameSeedMakesTheSameMutant) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  const std::vector<Program> original = build_all(*ring, {.ranks = 4});
  for (int kind = 0; kind < kMutationKinds; ++kind) {
    std::vector<Program> a = original, b = original;
    const Mutation first = mutate(&a, static_cast<MutationKind>(kind), 5),
                   second = mutate(&b, static_cast<MutationKind>(kind), 5);
    EXPECT_EQ(first.text, second.text);
    EXPECT_EQ(a, b);
  }
}

TEST(Mutation, severalFaultsAtOnceNeverCrashTheProof) {
  std::mt19937_64 random(20240501);
  int rejected = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    const std::vector<Problem> some = problems(*algorithm);
    for (int i = 0; i < 40 && !some.empty(); ++i) {
      const Problem& problem = some[random() % some.size()];
      std::vector<Program> mutant = build_all(*algorithm, problem);
      for (int k = 0; k < 4; ++k) {
        // Only garbage may be put on top of garbage: the others walk the program.
        const bool sound =
            std::all_of(mutant.begin(), mutant.end(), [](const Program& p) { return check(p).empty(); });
        mutate(&mutant,
               sound ? static_cast<MutationKind>(random() % kMutationKinds) : MutationKind::garbage,
               random());
      }
      rejected += !verify_programs(*algorithm, problem, mutant, {.fused = false}).ok();
    }
  }
  EXPECT_GT(rejected, 300);
}

}  // namespace
}  // namespace tamaki
