// Every algorithm, at many rank counts, roots, lanes and radices: run by the reference interpreter, held
// against its closed form, built twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/fuse.hpp"
#include "support/counts.hpp"
#include "support/serving.hpp"
#include "verify/interpreter.hpp"

namespace tamaki {
namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 23, 32, 33};

bool has_root(Collective c) {
  return c == Collective::reduce || c == Collective::broadcast || c == Collective::gather ||
         c == Collective::scatter;
}

std::string text_of(const Problem& q) {
  return std::string(name_of(q.collective)) + " p=" + std::to_string(q.ranks) +
         " root=" + std::to_string(q.root) + " lanes=" + std::to_string(q.lanes) +
         " radix=" + std::to_string(q.radix) + " pieces=" + std::to_string(q.pieces) +
         (q.commutative ? "" : " non-commutative");
}

std::vector<Program> build_all(const Algorithm& algorithm, const Problem& problem) {
  std::vector<Program> programs;
  for (int r = 0; r < problem.ranks; ++r)
    programs.push_back(algorithm.build(Topology::flat(problem.ranks), problem, r));
  return programs;
}

/// The problems of one algorithm that it does not refuse.
std::vector<Problem> problems(const Algorithm& algorithm) {
  std::vector<Problem> all;
  for (int p : kRanks) {
    std::set<int> roots = {0};
    if (has_root(algorithm.collective)) {
      for (int root = 0; root < std::min(p, 5); ++root) roots.insert(root);
      if (p > 5) roots = {0, 1, p / 2, p - 1};
    }
    for (int root : roots)
      for (bool commutative : {true, false}) {
        std::vector<std::vector<Program>>
            seen;  // an algorithm without lanes builds the same for any number of them
        for (auto [lanes, radix, pieces] :
             {std::tuple{1, 2, 1}, {2, 3, 1}, {3, 4, 2}, {1, 3, 3}, {2, 2, 2}}) {
          if (!commutative && !reduces(algorithm.collective)) continue;
          const Problem problem = {.collective = algorithm.collective,
                                   .ranks = p,
                                   .root = root,
                                   .commutative = commutative,
                                   .lanes = lanes,
                                   .radix = radix,
                                   .pieces = pieces};
          if (!algorithm.refuses(Topology::flat(problem.ranks), problem).empty()) continue;
          std::vector<Program> programs = build_all(algorithm, problem);
          if (std::find(seen.begin(), seen.end(), programs) != seen.end()) continue;
          seen.push_back(std::move(programs));
          all.push_back(problem);
        }
      }
  }
  return all;
}

/// Fused steps around a cycle of ranks need two slots in each FIFO; everything else does with one.
int least_slots(const Algorithm& algorithm) { return algorithm.name == "ring" ? 2 : 1; }

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, doesWhatItsCollectivePromises) {
  const Algorithm& algorithm = *GetParam();
  std::uint64_t seed = 1;
  for (const Problem& problem : problems(algorithm)) {
    const std::vector<Program> programs = build_all(algorithm, problem);
    const int times = problem.ranks <= 8 ? 4 : 1;
    for (bool in_place : {false, true})
      for (bool direct : {false, true})
        for (bool uneven : {false, true}) {
          if (in_place && !algorithm.in_place_safe) continue;
          if (direct && !(in_place ? algorithm.direct_in_place_safe : algorithm.direct_safe)) continue;
          if (uneven && !algorithm.uneven_safe) continue;
          if (problem.ranks > 17 && uneven != algorithm.uneven_safe) continue;  // time
          for (int i = 0; i < times; ++i, ++seed) {
            const std::string complaint = interpret(
                programs,
                {.slices = 1 + static_cast<int>(seed % 3),
                 .slots = least_slots(algorithm) + static_cast<int>(seed % 2),
                 .in_place = in_place,
                 .direct = direct,
                 .uneven = uneven,
                 .keeps_order = algorithm.canonical || (algorithm.keeps_order && !problem.commutative),
                 .canonical = algorithm.canonical,
                 .seed = seed});
            ASSERT_EQ(complaint, "") << text_of(problem) << " in_place=" << in_place << " direct=" << direct
                                     << " uneven=" << uneven << " seed=" << seed;
          }
        }
  }
}

TEST_P(EveryAlgorithm, keepsItsClosedForm) {
  const Algorithm& algorithm = *GetParam();
  for (const Problem& problem : problems(algorithm)) {
    const std::vector<Program> programs = build_all(algorithm, problem);
    const ClosedForm promised = algorithm.closed_form(Topology::flat(problem.ranks), problem);
    const test::Counts counted = test::count(programs);
    if (promised.rounds != ClosedForm::kNotStated) {
      EXPECT_EQ(promised.rounds, counted.rounds) << text_of(problem);
    }
    EXPECT_EQ(promised.chunks_sent, counted.chunks_sent) << text_of(problem);
    EXPECT_EQ(promised.chunks_received, counted.chunks_received) << text_of(problem);
    EXPECT_EQ(promised.chunks, programs[0].chunks) << text_of(problem);
    if (HasFailure()) break;
  }
}

TEST_P(EveryAlgorithm, isAPureFunctionAndNamesItself) {
  const Algorithm& algorithm = *GetParam();
  EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm);
  EXPECT_FALSE(algorithm.source.empty());
  EXPECT_FALSE(algorithm.cost.empty());
  for (const Problem& problem : problems(algorithm)) {
    const int rank = problem.ranks / 2;
    const Program program = algorithm.build(Topology::flat(problem.ranks), problem, rank);
    EXPECT_EQ(program, algorithm.build(Topology::flat(problem.ranks), problem, rank)) << text_of(problem);
    EXPECT_EQ(program.algorithm, algorithm.name);
    EXPECT_EQ(program.collective, algorithm.collective);
    EXPECT_EQ(program.ranks, problem.ranks);
    EXPECT_EQ(program.rank, rank);
    EXPECT_EQ(program.root, has_root(algorithm.collective) ? problem.root : 0);
  }
}

TEST_P(EveryAlgorithm, refusesNonsenseWithNamesAndRanges) {
  const Algorithm& algorithm = *GetParam();
  const Topology topology = test::serving_topology(algorithm);
  Problem problem = {.collective = algorithm.collective, .ranks = 4};
  EXPECT_EQ(algorithm.refuses(topology, problem), "");
  problem.root = 4;
  EXPECT_EQ(algorithm.refuses(topology, problem), "root is 4, must be 0..3");
  problem = {.collective = algorithm.collective, .ranks = 0};
  EXPECT_EQ(algorithm.refuses(topology, problem), "ranks is 0, must be 1..65535");
  problem = {.collective = algorithm.collective, .ranks = 4, .lanes = 0};
  EXPECT_EQ(algorithm.refuses(topology, problem), "lanes is 0, must be 1..1024");
  problem = {.collective = algorithm.collective, .ranks = 4, .radix = 1};
  EXPECT_EQ(algorithm.refuses(topology, problem), "radix is 1, must be 2 or more");
  problem = {.collective = algorithm.collective, .ranks = 4, .pieces = 0};
  EXPECT_EQ(algorithm.refuses(topology, problem), "pieces is 0, must be 1 or more");
  if (reduces(algorithm.collective)) {
    problem = {.collective = algorithm.collective, .ranks = 4, .commutative = false};
    EXPECT_EQ(algorithm.refuses(topology, problem).empty(), algorithm.keeps_order)
        << algorithm.refuses(topology, problem);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm,
                         testing::ValuesIn(all_algorithms().begin(), all_algorithms().end()),
                         [](const auto& instance) {
                           return std::string(name_of(instance.param->collective)) + "_" +
                                  std::string(instance.param->name);
                         });

/// The interpreter has to notice what goes wrong, or the tests above prove nothing.
TEST(Interpreter, noticesMutations) {
  const auto notices = [](std::vector<Program> programs, const auto& mutate) {
    mutate(programs);
    for (std::uint64_t seed = 1; seed <= 50; ++seed)
      if (!interpret(programs, {.in_place = true, .keeps_order = true, .canonical = true, .seed = seed})
               .empty())
        return true;
    return false;
  };
  const Problem problem = {.collective = Collective::allreduce, .ranks = 4};
  const std::vector<Program> right =
      build_all(*find_algorithm(Collective::allreduce, "direct_two_shot"), problem);
  EXPECT_FALSE(notices(right, [](auto&) {}));
  EXPECT_TRUE(notices(right, [](auto& all) { all[1].steps[0].first_operand += 2; }))
      << "a message to another rank";
  EXPECT_TRUE(notices(right, [](auto& all) { all[2].lanes[0].blocks.clear(); })) << "missing messages";
  EXPECT_TRUE(notices(right, [](auto& all) { all[2].lanes[2].blocks[0].times = 2; }))
      << "more receives than sends";
  EXPECT_TRUE(notices(right, [](auto& all) {
    for (Step& step : all[0].steps) step.finish = false;
  })) << "a result that is not finished";
  EXPECT_TRUE(notices(right, [](auto& all) {
    for (const Step& step : all[3].steps)
      if (step.sources == 4)
        std::swap(all[3].operands[step.first_operand], all[3].operands[step.first_operand + 1]);
  })) << "operands out of order";
  EXPECT_TRUE(notices(right, [](auto& all) {
    for (const Step& step : all[0].steps)
      if (step.sources == 4) all[0].operands[step.first_operand].chunk = 1;
  })) << "a wrong chunk";
  const std::vector<Program> shot =
      build_all(*find_algorithm(Collective::allreduce, "direct_one_shot"), problem);
  EXPECT_TRUE(notices(shot, [](auto& all) {
    for (Step& step : all[0].steps) step.dependencies = 0;
  })) << "a dependency that is gone";
}

TEST(Algorithms, everyCollectiveHasItsChoices) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    bool any_ranks = false, ordered = false, canonical = false;
    for (const Algorithm* algorithm : all_algorithms()) {
      if (algorithm->collective != collective) continue;
      bool all = true;
      for (int p = 1; p <= 64; ++p)
        all &= algorithm->refuses(Topology::flat(p), {.collective = collective, .ranks = p}).empty();
      any_ranks |= all;
      ordered |= all && algorithm->keeps_order;
      canonical |= all && algorithm->canonical;
      EXPECT_TRUE(!algorithm->canonical || algorithm->keeps_order) << algorithm->name;
    }
    EXPECT_TRUE(any_ranks) << name_of(collective);
    EXPECT_EQ(ordered, reduces(collective)) << name_of(collective);
    EXPECT_EQ(canonical, reduces(collective)) << name_of(collective);
  }
}

TEST(Algorithms, areNotDirectInPlaceOnlyWhereThatGoesWrong) {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!algorithm->direct_safe || algorithm->direct_in_place_safe) continue;
    int complaints = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      const int ranks = 2 + static_cast<int>(seed % 3);
      const Problem problem = {.collective = algorithm->collective, .ranks = ranks};
      std::vector<Program> programs;
      for (const Topology& topology :
           {Topology::flat(ranks), Topology::torus({{ranks, true}}, 1), Topology::rails(ranks, 1)}) {
        if (!algorithm->refuses(topology, problem).empty()) continue;
        for (bool fused : {false, true}) {
          programs.clear();
          for (int r = 0; r < ranks; ++r) {
            programs.push_back(algorithm->build(topology, problem, r));
            if (fused) programs.back() = fuse(programs.back());
          }
          complaints += !interpret(programs, {.in_place = true, .direct = true, .seed = seed}).empty();
        }
        if (!algorithm->uses_topology) break;
      }
    }
    EXPECT_GT(complaints, 0) << name_of(algorithm->collective) << " " << algorithm->name;
  }
}

TEST(Algorithms, nameSizesThatTheirRankKnows) {
  int found = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!algorithm->pairwise_sizes || !has_root(algorithm->collective)) continue;
    ++found;
    const Buffer known = algorithm->collective == Collective::gather ? Buffer::input : Buffer::output;
    for (const Problem& problem : problems(*algorithm))
      for (const Program& program : build_all(*algorithm, problem))
        for (const Step& step : program.steps) {
          const bool own = program.rank == problem.root || step.extent.buffer == known;
          EXPECT_TRUE(own) << text_of(problem);
        }
  }
  EXPECT_EQ(found, 2);
}

/// Cost of a build is that of the rank's own steps: O(p) records where it talks to everybody, a few where
/// it does not.
TEST(Algorithms, buildsOneRankOfThirteenThousand) {
  constexpr int p = 13'824;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->uses_topology) continue;  // places_test.cpp
    const Problem problem = {.collective = algorithm->collective, .ranks = p, .lanes = 2, .pieces = 4};
    if (!algorithm->refuses(Topology::flat(problem.ranks), problem).empty()) continue;
    const Program program = algorithm->build({}, problem, 7);
    const std::string name(algorithm->name);
    const bool to_everybody =
        name.starts_with("direct") || name == "pairwise" || program.collective == Collective::alltoall;
    const bool copies_all = name == "pat";  // to or from scratch
    EXPECT_LE(program.operands.size(), to_everybody || copies_all ? 8 * p : 600)
        << name_of(algorithm->collective) << " " << name;
    EXPECT_NE(algorithm->closed_form(Topology::flat(problem.ranks), problem).rounds, 0);
  }
}

TEST(Algorithms, aRingOfThirteenThousandRanksIsAHandfulOfRecords) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  const Program program = ring->build({}, {.ranks = 13'824, .lanes = 2}, 7);
  EXPECT_EQ(program.steps.size(), 10u);
  EXPECT_EQ(program.operands.size(), 28u);
  EXPECT_EQ(expanded_steps(program, 0), 2 * 13'824 - 1);
}

}  // namespace
}  // namespace tamaki
