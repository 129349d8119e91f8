#include "schedule/fuse.hpp"

#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"
#include "schedule/print.hpp"
#include "verify/interpreter.hpp"
#include "verify/mutate.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

/// A ring allreduce in separate steps, as one would first write it.
Program plain_ring(int p, int rank, bool with_loops) {
  Builder b({.algorithm = "plain", .ranks = p, .rank = rank, .chunks = p, .scratch_chunks = 1});
  auto lane = b.lane();
  const int next = (rank + 1) % p, previous = (rank + p - 1) % p;
  const auto chunk = [&](int s) { return ((rank - s) % p + p) % p; };
  lane.send(in(rank), to(next));
  const auto reduce = [&](int c, int stride) {
    lane.recv(from(previous), tmp(0), {.size_of = in(c, stride)});
    lane.step({tmp(0), in(c, stride)}, {tmp(0)});
    lane.step({tmp(0)}, {to(next)}, {.size_of = in(c, stride)});
  };
  const auto forward = [&](int c, int stride) {
    lane.recv(from(previous), out(c, stride));
    lane.send(out(c, stride), to(next));
  };
  if (with_loops)
    lane.repeat(p - 2, p, [&] { reduce(chunk(1), -1); });
  else
    for (int s = 1; s < p - 1; ++s) reduce(chunk(s), 0);
  lane.recv(from(previous), tmp(0), {.size_of = in(chunk(p - 1))});
  lane.step({tmp(0), in(chunk(p - 1))}, {out(chunk(p - 1))}, {.finish = true});
  lane.send(out(chunk(p - 1)), to(next));
  if (with_loops)
    lane.repeat(p - 2, p, [&] { forward(chunk(p), -1); });
  else
    for (int s = p; s < 2 * p - 2; ++s) forward(chunk(s), 0);
  lane.recv(from(previous), out(chunk(2 * p - 2)));
  return b.take();
}

TEST(Fuse, plainRingBecomesTheRing) {
  const Program fused = fuse(plain_ring(4, 1, true));
  EXPECT_EQ(print(fused),
            "allreduce plain: rank 1 of 4, 4 chunks, 1 scratch\n"
            "lane 0\n"
            "  0     send                   input 1 -> to 2\n"
            "  1     recv_reduce_send       from 0, input 0 -> to 2\n"
            "  2     recv_reduce_send       from 0, input 3 -> to 2\n"
            "  3     recv_reduce_copy_send  from 0, input 2 -> output 2, to 2  finish\n"
            "  4     recv_copy_send         from 0 -> output 1, to 2\n"
            "  5     recv_copy_send         from 0 -> output 0, to 2\n"
            "  6     recv                   from 0 -> output 3\n");
  EXPECT_EQ(print(fuse(plain_ring(4, 1, false))), print(fused));
}

TEST(Fuse, keepsTheMeaning) {
  for (bool loops : {false, true})
    for (int p : {2, 3, 4, 7, 16}) {
      std::vector<Program> plain, fused;
      for (int r = 0; r < p; ++r) {
        plain.push_back(plain_ring(p, r, loops));
        fused.push_back(fuse(plain.back()));
        EXPECT_TRUE(check(fused.back()).empty());
      }
      for (bool in_place : {false, true}) {
        EXPECT_EQ(verify(plain, {.in_place = in_place}).text().find("finding"), std::string::npos);
        const Report report = verify(
            fused, {.in_place = in_place, .direct = !in_place, .uneven = true, .empty_chunks = true});
        EXPECT_TRUE(report.ok()) << report.text();
        EXPECT_EQ(interpret(fused, {.slots = 2, .in_place = in_place, .seed = 3}), "");
      }
    }
}

TEST(Fuse, fusedAlgorithmsAreLeftAlone) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  for (int r = 0; r < 5; ++r) {
    const Program program = ring->build(Topology::flat(5), {.ranks = 5, .lanes = 2}, r);
    EXPECT_EQ(print(fuse(program)), print(program));
  }
}

TEST(Fuse, dropsNoScratchThatIsReadLater) {
  const auto steps = [](bool read_again, bool other_lane, bool awaited) {
    Builder b({.algorithm = "sample", .ranks = 4, .rank = 1, .chunks = 2, .scratch_chunks = 1});
    auto lane = b.lane();
    lane.recv(from(0), tmp(0), {.size_of = in(0)});
    const StepId reduced = lane.step({tmp(0), in(0)}, {tmp(0)});
    lane.step({tmp(0)}, {to(2)}, {.size_of = in(0)});
    if (read_again) lane.copy(tmp(0), out(0));
    if (other_lane || awaited) {
      auto other = b.lane();
      if (awaited)
        other.copy(in(1), out(1), {.after = {&reduced, 1}});
      else
        other.copy(tmp(0), out(1), {.size_of = out(1)});
    }
    return fuse(b.take());
  };
  EXPECT_NE(print(steps(false, false, false)).find("recv_reduce_send       from 0, input 0 -> to 2"),
            std::string::npos);
  // Read again in this lane: kept, and written together with what read it.
  EXPECT_NE(
      print(steps(true, false, false)).find("recv_reduce_copy_send  from 0, input 0 -> to 2, output 0"),
      std::string::npos)
      << print(steps(true, false, false));
  EXPECT_NE(print(steps(false, true, false)).find("scratch 0, to 2"), std::string::npos)
      << print(steps(false, true, false));
  // Another lane waits for the reduction: what follows it stays apart, and the number is that of the fused
  // step.
  const std::string text = print(steps(false, false, true));
  EXPECT_NE(text.find("  0     recv_reduce            from 0, input 0 -> scratch 0"), std::string::npos)
      << text;
  EXPECT_NE(text.find("after 0:0"), std::string::npos) << text;
}

/// The program with every step taken apart: messages are received into scratch, combined, and sent by steps
/// of their own.
Program taken_apart(const Program& whole) {
  int most = 0;
  for (const Step& s : whole.steps) most = std::max<int>(most, s.sources);
  Builder b({.algorithm = whole.algorithm,
             .collective = whole.collective,
             .ranks = whole.ranks,
             .rank = whole.rank,
             .root = whole.root,
             .chunks = whole.chunks,
             .scratch_chunks =
                 whole.scratch_chunks + (most + 1) * whole.max_width * static_cast<int>(whole.lanes.size()),
             .max_width = whole.max_width});
  std::vector<std::vector<StepId>> last(whole.lanes.size());  // of each step of the whole program
  int free = whole.scratch_chunks;
  std::vector<Builder::LaneBuilder> lanes;
  for (std::size_t l = 0; l < whole.lanes.size(); ++l) lanes.push_back(b.lane());
  // Numbers of the taken apart steps first, dependencies may point forward.
  for (int pass = 0; pass < 2; ++pass) {
    for (int l = 0; l < static_cast<int>(whole.lanes.size()); ++l) {
      int number = 0;
      for (LaneCursor cursor(whole, l); !cursor.done(); cursor.advance()) {
        const ExpandedStep& s = cursor.current();
        std::vector<Operand> sources(s.sources, s.sources + s.step->sources), kept, sent;
        for (int d = 0; d < s.step->destinations; ++d)
          (s.destinations[d].kind == Operand::Kind::peer ? sent : kept).push_back(s.destinations[d]);
        const bool plain =
            sources.size() == 1 &&
            (sent.empty() || (kept.empty() && sent.size() == 1 && sources[0].kind == Operand::Kind::local));
        std::vector<StepId> after;
        if (pass == 1)
          for (int d = 0; d < s.step->dependencies; ++d) {
            const Dependency& need = whole.dependencies[s.step->first_dependency + d];
            after.push_back(last[need.lane][need.step]);
          }
        StepOptions options{.width = s.step->width,
                            .after = after,
                            .size_of = {.buffer = s.extent.buffer, .chunk = s.extent.chunk}};
        const auto add = [&](const std::vector<Operand>& from_these, const std::vector<Operand>& to_these,
                             bool finish) {
          options.finish = finish;
          if (pass == 1) lanes[l].step(from_these, to_these, options);
          ++number;
        };
        std::vector<Operand> all = kept;
        all.insert(all.end(), sent.begin(), sent.end());
        if (plain) {
          add(sources, all, s.step->finish);
        } else {
          int place = free + l * (most + 1) * whole.max_width;
          for (Operand& o : sources)
            if (o.kind == Operand::Kind::peer) {
              add({o}, {tmp(place)}, false);
              o = tmp(place);
              place += whole.max_width;
            }
          if (kept.empty()) kept.push_back(tmp(place));
          add(sources, kept, s.step->finish);
          for (const Operand& o : sent) add({kept[0]}, {o}, false);
        }
        if (pass == 0) last[l].push_back({l, number - 1});
      }
    }
  }
  return b.take();
}

TEST(Fuse, everyAlgorithmTakenApartIsPutTogetherAgain) {
  int apart_steps = 0, fused_steps = 0, whole_steps = 0;
  for (const Algorithm* algorithm : all_algorithms())
    for (int p : {2, 3, 4, 6, 8}) {
      if (algorithm->collective == Collective::barrier)
        continue;  // reads scratch that holds nothing, on purpose
      const Problem problem{.collective = algorithm->collective, .ranks = p};
      if (!algorithm->refuses(Topology::flat(problem.ranks), problem).empty()) continue;
      std::vector<Program> fused;
      for (int r = 0; r < p; ++r) {
        const Program whole = unrolled(algorithm->build(Topology::flat(p), problem, r));
        const Program apart = taken_apart(whole);
        const std::vector<Finding> found = check(apart);
        ASSERT_TRUE(found.empty()) << algorithm->name << ": " << text_of(found[0]);
        fused.push_back(fuse(apart));
        ASSERT_TRUE(check(fused.back()).empty());
        whole_steps += static_cast<int>(whole.steps.size());
        apart_steps += static_cast<int>(apart.steps.size());
        fused_steps += static_cast<int>(fused.back().steps.size());
        EXPECT_LE(fused.back().steps.size(), whole.steps.size()) << describe(*algorithm, problem) << "\n"
                                                                 << print(whole) << print(fused.back());
      }
      Algorithm promised =
          *algorithm;  // the copies through scratch touch other memory: only the meaning must stay
      promised.direct_in_place_safe = promised.direct_safe = false;
      const Report report = verify_programs(promised, problem, fused, {.fused = false});
      EXPECT_TRUE(report.ok()) << report.text();
    }
  std::printf("%d steps, taken apart %d, fused again %d\n", whole_steps, apart_steps, fused_steps);
  EXPECT_GT(apart_steps, whole_steps * 3 / 2);
}

}  // namespace
}  // namespace tamaki
