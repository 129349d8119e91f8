#include "schedule/json.hpp"

#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"
#include "schedule/print.hpp"

namespace tamaki {
namespace {

TEST(Json, roundTripIsExact) {
  for (const Algorithm* algorithm : all_algorithms())
    for (int ranks : {1, 2, 4, 5}) {
      const Problem problem{.collective = algorithm->collective, .ranks = ranks, .lanes = 2, .pieces = 2};
      if (!algorithm->refuses(Topology::flat(problem.ranks), problem).empty()) continue;
      std::vector<Program> programs;
      for (int rank = 0; rank < ranks; ++rank) {
        programs.push_back(normalized(algorithm->build(Topology::flat(ranks), problem, rank)));
        for (int indent : {-1, 2}) {
          const Result<Program> back = program_from_json(to_json(programs.back(), indent));
          ASSERT_TRUE(back) << back.error().message;
          EXPECT_EQ(*back, programs.back()) << algorithm->name;
        }
      }
      const Result<std::vector<Program>> all = schedule_from_json(schedule_to_json(programs));
      ASSERT_TRUE(all) << all.error().message;
      EXPECT_EQ(*all, programs);
    }
}

TEST(Json, normalizedChangesNothingThatCanBeSeen) {
  const Algorithm* tree = find_algorithm(Collective::allreduce, "ring");
  const Program program = tree->build(Topology::flat(4), {.ranks = 4, .lanes = 3}, 2);
  EXPECT_EQ(print(normalized(program)), print(program));
  EXPECT_EQ(normalized(normalized(program)), normalized(program));
}

TEST(Json, fieldsThatMeanNothingAreKept) {
  Program p = Program{.algorithm = "odd \"name\"\n",
                      .collective = Collective::alltoall,
                      .ranks = -3,
                      .rank = 9,
                      .chunks = 0};
  p.operands = {{.kind = Operand::Kind::local,
                 .buffer = Buffer::none,
                 .channel = 7,
                 .peer = 3,
                 .chunk = -5,
                 .stride = 2},
                {.kind = Operand::Kind::peer,
                 .buffer = Buffer::none,
                 .channel = 65535,
                 .peer = -2147483647 - 1,
                 .chunk = 1}};
  p.steps = {{.sources = 1, .destinations = 1, .width = -1}};
  p.lanes = {{{{0, 1, -4, -9}}}, {}};
  const Result<Program> back = program_from_json(to_json(p));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, p);
}

TEST(Json, errorsNameThePlace) {
  const auto error = [](std::string text) {
    const Result<std::vector<Program>> parsed = schedule_from_json(text);
    return parsed ? "" : parsed.error().message;
  };
  const std::string good = schedule_to_json(std::vector{
      find_algorithm(Collective::allreduce, "ring")->build(Topology::flat(2), {.ranks = 2}, 0)});
  EXPECT_EQ(error(good), "");
  const auto with = [&](std::string from, std::string to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return error(text.replace(at, from.size(), to));
  };
  EXPECT_EQ(error("{}"), "format: must be \"tamaki-schedule-1\"");
  EXPECT_EQ(error("[1").substr(0, 9), "not JSON:");
  EXPECT_EQ(error("").substr(0, 9), "not JSON:");
  EXPECT_EQ(error(R"({"format":"tamaki-schedule-1"})"), "programs: must be an array");
  EXPECT_EQ(error(R"({"format":"tamaki-schedule-1","programs":[3]})"), "programs[0]: must be an object");
  EXPECT_EQ(with("\"ranks\":2", "\"ranks\":2.5"),
            "programs[0].ranks: must be a whole number in -2147483648..2147483647");
  EXPECT_EQ(with("\"ranks\":2", "\"ranks\":4294967296"),
            "programs[0].ranks: must be a whole number in -2147483648..2147483647");
  EXPECT_EQ(with("\"ranks\":2", "\"rank_s\":2"), "programs[0]: has an unknown member \"rank_s\"");
  EXPECT_EQ(with("\"ranks\":2,", ""), "programs[0].ranks: is missing");
  EXPECT_EQ(with("\"allreduce\"", "\"allreduces\""),
            "programs[0].collective: must be the name of a collective, as \"allreduce\"");
  EXPECT_EQ(with("\"at\":\"input\"", "\"at\":\"inputs\""),
            "programs[0].lanes[0][0].steps[0].sources[0].at: must be \"input\", \"output\", \"scratch\" or "
            "\"none\"");
  EXPECT_EQ(with("\"peer\":1", "\"peer\":\"1\""),
            "programs[0].lanes[0][0].steps[0].destinations[0].peer: must be a whole number in "
            "-2147483648..2147483647");
  EXPECT_EQ(with("\"finish\":true", "\"finish\":1"),
            "programs[0].lanes[0][0].steps[1].finish: must be true or false");
  EXPECT_EQ(with("\"finish\":true", "\"after\":{}"),
            "programs[0].lanes[0][0].steps[1].after: must be an array");
  EXPECT_EQ(with("\"finish\":true", "\"after\":[[0]]"),
            "programs[0].lanes[0][0].steps[1].after[0]: must be [lane, step]");
}

TEST(Json, cutAndChangedTextNeverCrashes) {
  const std::string good = schedule_to_json(std::vector{
      find_algorithm(Collective::allreduce, "ring")->build(Topology::flat(3), {.ranks = 3}, 1)});
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    refused += !schedule_from_json(good.substr(0, i));
    std::string changed = good;
    changed[i] = static_cast<char>(i * 31 % 256);
    refused += !schedule_from_json(changed);
  }
  EXPECT_GT(refused, static_cast<int>(good.size()));
  EXPECT_FALSE(schedule_from_json(std::string(100000, '[')));
}

}  // namespace
}  // namespace tamaki
