#include "schedule/check.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// Rank 1 of 4 of an allreduce of four chunks.
Program sample(const std::function<void(Builder&)>& fill, ProgramHeader header = {}) {
  header.algorithm = "sample";
  header.ranks = 4;
  header.rank = 1;
  header.chunks = 4;
  header.scratch_chunks = 2;
  if (header.max_width == 1) header.max_width = 2;
  Builder b(header);
  fill(b);
  return b.take();
}

std::string first(const Program& program) {
  const std::vector<Finding> found = check(program);
  return found.empty() ? "" : text_of(found[0]);
}

TEST(Check, findsNothingInTheBuiltPrograms) {
  for (const Algorithm* algorithm : all_algorithms())
    for (int ranks : {1, 2, 3, 4, 7, 8, 16}) {
      const Problem problem{.collective = algorithm->collective, .ranks = ranks, .lanes = 2, .pieces = 2};
      if (!algorithm->refuses(Topology::flat(problem.ranks), problem).empty()) continue;
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(first(algorithm->build(Topology::flat(ranks), problem, rank)), "")
            << algorithm->name << " " << ranks;
    }
}

TEST(Check, namesPlaceAndRange) {
  const auto one = [](std::initializer_list<Operand> sources, std::initializer_list<Operand> destinations,
                      StepOptions options = {}) {
    return first(sample([&](Builder& b) { b.lane().step(sources, destinations, options); }));
  };
  EXPECT_EQ(one({in(0)}, {out(0)}), "");
  EXPECT_EQ(one({in(4)}, {out(0)}), "rank 1 lane 0 step 0: input 4..4 is outside of 0..3");
  EXPECT_EQ(one({in(3)}, {to(2)}, {.width = 2}), "rank 1 lane 0 step 0: input 3..4 is outside of 0..3");
  EXPECT_EQ(one({in(0)}, {in(1)}), "rank 1 lane 0 step 0: writes to the input");
  EXPECT_EQ(one({in(0)}, {to(4)}), "rank 1 lane 0 step 0: peer 4 is not in 0..3");
  EXPECT_EQ(one({in(0)}, {to(1)}), "rank 1 lane 0 step 0: sends or receives a message of its own rank");
  EXPECT_EQ(one({in(0)}, {to(2)}, {.width = 3}),
            "rank 1 lane 0 step 0: width 3 is not in 1..2 (max_width)");
  EXPECT_EQ(one({in(0)}, {to(2, out(7))}),
            "rank 1 lane 0 step 0: the peer's output 7..7 is outside of 0..3");
  EXPECT_EQ(one({from(0)}, {tmp(0)}), "rank 1 lane 0 step 0: its size is not given (extent)");
  EXPECT_EQ(one({from(0)}, {tmp(2)}, {.size_of = in(0)}),
            "rank 1 lane 0 step 0: scratch 2..2 is outside of 0..1");
  EXPECT_EQ(one({in(0)}, {out(1)}), "rank 1 lane 0 step 0: moves output 1 with the size of input 0");
  EXPECT_EQ(one({from(0), from(0)}, {out(1)}), "rank 1 lane 0 step 0: uses the FIFO from 0 twice");
  EXPECT_EQ(one({in(0), in(0)}, {out(0)}), "rank 1 lane 0 step 0: operands overlap at input 0");
  EXPECT_EQ(one({in(0)}, {out(0)}, {.finish = true}),
            "rank 1 lane 0 step 0: is said to finish a result, but combines nothing");
  EXPECT_EQ(one({}, {out(0)}), "rank 1 lane 0 step 0: has no source");
  EXPECT_EQ(one({in(0)}, {}), "rank 1 lane 0 step 0: has no destination");
}

TEST(Check, followsLoopsToTheIterationThatLeavesTheBounds) {
  const auto loop = [](int times, int modulus, Operand source) {
    return first(sample([&](Builder& b) {
      auto lane = b.lane();
      lane.repeat(times, modulus, [&] { lane.send(source, to(2)); });
    }));
  };
  EXPECT_EQ(loop(1000000, 4, in(1, -1)), "");
  EXPECT_EQ(loop(4, 0, in(0, 1)), "");
  EXPECT_EQ(loop(5, 0, in(0, 1)), "rank 1 lane 0 step 4: input 4..4 is outside of 0..3");
  EXPECT_EQ(loop(3, 0, in(1, -1)), "rank 1 lane 0 step 2: input -1..-1 is outside of 0..3");
  EXPECT_EQ(loop(9, 8, in(1, 1)), "rank 1 lane 0 step 3: input 4..4 is outside of 0..3");
  EXPECT_EQ(loop(3, 0, in(0, std::numeric_limits<int>::max())),
            "rank 1 lane 0 step 1: input 2147483647..2147483647 is outside of 0..3");
  EXPECT_NE(loop(std::numeric_limits<int>::max(), 4, in(0, 1)).find("steps with loops unrolled"),
            std::string::npos);
}

TEST(Check, dependenciesExistAndFormNoCycle) {
  const auto two_lanes = [](int step_of_first, int step_of_second) {
    return first(sample([&](Builder& b) {
      auto a = b.lane(), c = b.lane();
      const StepId on_c{1, step_of_first}, on_a{0, step_of_second};
      a.copy(in(0), out(0), {.after = {&on_c, 1}});
      a.copy(in(1), out(1));
      c.copy(in(2), out(2), {.after = {&on_a, 1}});
      c.copy(in(3), out(3));
    }));
  };
  EXPECT_EQ(two_lanes(2, 0), "rank 1 lane 0 step 0: depends on step 2 of lane 1, which has 2 steps");
  EXPECT_EQ(two_lanes(0, 0),
            "rank 1 lane 0 step 0: waits for lane 1 step 0, which waits, directly or not, for this step");
  const StepId itself{0, 0};
  EXPECT_NE(first(sample([&](Builder& b) { b.lane().copy(in(0), out(0), {.after = {&itself, 1}}); })), "");
}

TEST(Check, headersAndRangesOfGarbage) {
  Program p = sample([](Builder& b) { b.lane().copy(in(0), out(0)); });
  const auto with = [&](auto change) {
    Program changed = p;
    change(changed);
    return first(changed);
  };
  EXPECT_EQ(with([](Program& q) { q.rank = 4; }), "rank 4: rank 4 is not in 0..3");
  EXPECT_EQ(with([](Program& q) { q.ranks = 0; }).find("rank 1: 0 ranks"), 0u);
  EXPECT_NE(with([](Program& q) {
              q.ranks = 1 << 20;
              q.chunks = 1 << 20;
            }),
            "");
  EXPECT_NE(with([](Program& q) { q.steps[0].sources = 9; }), "");
  EXPECT_NE(with([](Program& q) { q.steps[0].first_operand = -1; }), "");
  EXPECT_NE(with([](Program& q) { q.lanes[0].blocks[0].end = 7; }), "");
  EXPECT_NE(with([](Program& q) { q.steps[0].dependencies = 1; }), "");
  EXPECT_NE(with([](Program& q) { q.operands[0].kind = static_cast<Operand::Kind>(9); }), "");
  EXPECT_NE(with([](Program& q) { q.collective = static_cast<Collective>(77); }), "");
}

}  // namespace
}  // namespace tamaki
