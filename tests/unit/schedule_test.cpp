#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "base/options.hpp"
#include "schedule/program.hpp"

namespace tamaki {
namespace {

TEST(Rotate, staysInsideItsGroup) {
  EXPECT_EQ(rotate(5, -2, 4), 7);
  EXPECT_EQ(rotate(0, 13, 4), 1);
  EXPECT_EQ(rotate(6, 3, 0), 9);
}

TEST(Ring, expandsToTwiceTheRanksMinusTwoSteps) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  ASSERT_NE(ring, nullptr);
  const Program program = ring->build(Topology::flat(5), {.ranks = 5, .lanes = 2}, 3);
  EXPECT_EQ(program.lanes.size(), 2u);
  EXPECT_EQ(expanded_steps(program, 0), 9);  // send, 3 recv_reduce_send, 1 + 3 forward, recv
  LaneCursor cursor(program, 0);
  cursor.advance();
  cursor.advance();
  EXPECT_STREQ(name_of(*cursor.current().step, cursor.current().sources), "recv_reduce_send");
  EXPECT_EQ(cursor.current().sources[1].chunk, 1);
}

TEST(Options, errorNamesVariableTextAndRange) {
  const auto parsed = parse_options({"TAMAKI_TIMEOUT_MS=soon"});
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("TAMAKI_TIMEOUT_MS=\"soon\" is not in its range 1..2147483647"),
            std::string::npos);
}

}  // namespace
}  // namespace tamaki
