// Groups that run at the same time: alone where they share nothing, slower where they share links.
#include "simulate/side_by_side.hpp"

#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "topology/machine.hpp"
#include "topology/placement/groups.hpp"

namespace tamaki {
namespace {

Machine bare(std::string_view name) {
  Result<Machine> made = machine_from(name);
  EXPECT_TRUE(made) << made.error().message;
  Machine machine = made ? *made : Machine{};
  machine.model = {};
  machine.model.startup_s = 1e-6;
  return machine;
}

GroupProgramSource ring_of(Collective collective, int size) {
  return [=](std::int32_t, std::int32_t member) {
    return find_algorithm(collective, "ring")
        ->build(Topology::flat(size), {.collective = collective, .ranks = size}, member);
  };
}

double seconds(const Machine& machine, const std::vector<std::vector<std::int32_t>>& groups,
               Collective collective, double bytes) {
  const Result<std::unique_ptr<Network>> network = Network::of(machine, place_all(machine));
  EXPECT_TRUE(network) << network.error().message;
  const int size = static_cast<int>(groups.front().size());
  const Result<ProgramSource> programs =
      side_by_side((*network)->ranks(), groups, ring_of(collective, size));
  EXPECT_TRUE(programs) << programs.error().message;
  const Result<Simulation> made = simulate(
      **network, *programs, {.bytes = bytes_side_by_side(collective, bytes, (*network)->ranks(), size)});
  EXPECT_TRUE(made) << made.error().message;
  return made->seconds;
}

/// Rows of a torus share no link: each takes the closed form of a ring alone.
TEST(SideBySide, GroupsThatShareNothingTakeTheTimeOfOne) {
  const Machine machine = bare("torus:3x4");
  const std::vector<std::vector<std::int32_t>> rows = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  const double n = 4e6, rate = 1.25e9;
  EXPECT_NEAR(seconds(machine, rows, Collective::allreduce, n), 6 * (n / 4 / rate + 1e-6), 1e-9);
  // n of a group is all its members' blocks, also among 12 ranks.
  EXPECT_NEAR(seconds(machine, rows, Collective::allgather, n), 3 * (n / 4 / rate + 1e-6), 1e-9);
  EXPECT_NEAR(seconds(machine, {rows[1]}, Collective::allgather, n), 3 * (n / 4 / rate + 1e-6), 1e-9);
}

/// Members two hops apart: the two groups cross each link together.
TEST(SideBySide, GroupsThatShareLinksTakeLonger) {
  const Machine machine = bare("torus:8");
  const std::vector<std::vector<std::int32_t>> groups = {{0, 2, 4, 6}, {1, 3, 5, 7}};
  const double n = 4e6, alone = seconds(machine, {groups[0]}, Collective::allreduce, n);
  EXPECT_NEAR(alone, 6 * (n / 4 / 1.25e9 + 1e-6), 1e-9);
  EXPECT_NEAR(seconds(machine, groups, Collective::allreduce, n), 6 * (2 * n / 4 / 1.25e9 + 1e-6), 1e-9);
}

TEST(SideBySide, WrongGroupsAreRefused) {
  const auto refused = [](const std::vector<std::vector<std::int32_t>>& groups) {
    const Result<ProgramSource> made = side_by_side(4, groups, ring_of(Collective::allreduce, 2));
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(refused({{0, 1}, {2, 3}}), "");
  EXPECT_EQ(refused({}), "no group of ranks is given");
  EXPECT_EQ(refused({{0, 1}, {2}}), "group 1 has 1 ranks, group 0 has 2");
  EXPECT_EQ(refused({{0, 4}}), "rank 4 of group 0 is not in 0..3");
  EXPECT_EQ(refused({{0, 1}, {1, 2}}), "rank 1 is in groups 0 and 1");
}

}  // namespace
}  // namespace tamaki
