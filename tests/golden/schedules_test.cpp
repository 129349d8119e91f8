// The schedules of every algorithm for 4 ranks as text, against
// tests/golden/schedules/<collective>_<name>.txt. A change of an algorithm shows as a difference there, to
// be read before it is accepted.
//
// To write the files anew, from the root of the sources:
//   TAMAKI_GOLDEN_WRITE=1 <build>/tests/golden_tests --gtest_filter='*Golden*' && git diff tests/golden
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "algorithms/algorithm.hpp"
#include "schedule/print.hpp"
#include "support/serving.hpp"

namespace tamaki {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(TAMAKI_SOURCE_DIR) / "tests/golden/schedules";

std::string file_name(const Algorithm& a) {
  return std::string(name_of(a.collective)) + "_" + std::string(a.name) + ".txt";
}

std::string schedule_text(const Algorithm& algorithm) {
  const Problem problem{.collective = algorithm.collective, .ranks = 4};
  const Topology topology = test::serving_topology(algorithm);
  if (const std::string reason = algorithm.refuses(topology, problem); !reason.empty())
    return "refused: " + reason + "\n";
  std::vector<Program> programs;
  for (int r = 0; r < 4; ++r) programs.push_back(algorithm.build(topology, problem, r));
  return print(programs);
}

class GoldenSchedule : public testing::TestWithParam<const Algorithm*> {};

TEST_P(GoldenSchedule, isAsItWas) {
  const std::filesystem::path path = kFolder / file_name(*GetParam());
  const std::string now = schedule_text(*GetParam());
  if (std::getenv("TAMAKI_GOLDEN_WRITE") != nullptr) {
    std::ofstream(path) << now;
    GTEST_SKIP() << "written: " << path;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << "missing " << path << "; the head of this file says how to write it";
  std::stringstream then;
  then << file.rdbuf();
  EXPECT_EQ(now, then.str()) << "differs from " << path
                             << "; the head of this file says how to write it anew";
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenSchedule,
                         testing::ValuesIn(all_algorithms().begin(), all_algorithms().end()),
                         [](const auto& a) {
                           return std::string(name_of(a.param->collective)) + "_" +
                                  std::string(a.param->name);
                         });

TEST(GoldenFolder, holdsNoFileOfAnAlgorithmThatIsGone) {
  std::set<std::string> known;
  for (const Algorithm* algorithm : all_algorithms()) known.insert(file_name(*algorithm));
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    EXPECT_TRUE(known.count(entry.path().filename().string())) << entry.path();
}

}  // namespace
}  // namespace tamaki
