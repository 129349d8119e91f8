#include "verify/verify.hpp"

#include <gtest/gtest.h>

#include "schedule/builder.hpp"

namespace tamaki {
namespace {

/// An allreduce of two ranks with one chunk, each rank's part written by `fill`.
std::vector<Program> pair_of(const std::function<void(Builder&, int)>& fill, ProgramHeader header = {}) {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    header.algorithm = "sample";
    header.ranks = 2;
    header.rank = r;
    Builder b(header);
    fill(b, r);
    programs.push_back(b.take());
  }
  return programs;
}

std::string findings(const std::vector<Program>& programs, VerifyOptions options = {}) {
  std::string text;
  for (const Finding& finding : verify(programs, options).findings) text += text_of(finding) + "\n";
  return text;
}
void expect_found(const std::vector<Program>& programs, const std::string& text,
                  VerifyOptions options = {}) {
  const std::string found = findings(programs, options);
  EXPECT_NE(found.find(text), std::string::npos) << "expected: " << text << "\nfound: " << found;
}

TEST(Verify, exchangeIsProved) {
  const auto programs = pair_of([](Builder& b, int r) {
    auto lane = b.lane();
    lane.send(in(0), to(1 - r));
    lane.step({in(0), from(1 - r)}, {out(0)}, {.finish = true});
  });
  EXPECT_EQ(findings(programs), "");
  EXPECT_EQ(findings(programs, {.in_place = true}), "");
  EXPECT_EQ(findings(programs, {.uneven = true}), "");
  EXPECT_EQ(verify(programs).text(), "allreduce sample, 2 ranks: proved (4 steps, 2 messages)");
  // In place, each rank overwrites what the other may still have to read.
  expect_found(programs, "writes output 0 of rank 1 while the message of rank 1 lane 0 step 0",
               {.in_place = true, .direct = true});
  expect_found(programs, "nothing orders it with rank 1 lane 0 step 1", {.in_place = true, .direct = true});
  expect_found(programs, "rank 1: output 0: is not combined in rank order", {.keeps_order = true});
}

TEST(Verify, contributionsMissingDoubledUnfinished) {
  expect_found(pair_of([](Builder& b, int) { b.lane().copy(in(0), out(0)); }),
               "rank 0: output 0: lacks the contributions of ranks 1");
  expect_found(pair_of([](Builder&, int) {}), "rank 1: output 0: is never written");
  expect_found(pair_of([](Builder& b, int r) {
                 auto lane = b.lane();
                 lane.send(in(0), to(1 - r));
                 lane.step({in(0), from(1 - r)}, {out(0)});
               }),
               "rank 0 lane 0 step 1: completes chunk 0 but is not said to finish it");
  expect_found(pair_of(
                   [](Builder& b, int r) {
                     auto lane = b.lane();
                     lane.send(in(0), to(1 - r));
                     lane.step({in(0), from(1 - r)}, {tmp(0)}, {.finish = true});
                     lane.step({in(0), tmp(0)}, {out(0)}, {.finish = true});
                   },
                   {.scratch_chunks = 1}),
               "combines chunk 0 with a result that is finished");
  expect_found(pair_of(
                   [](Builder& b, int) {
                     auto lane = b.lane();
                     lane.copy(in(0), tmp(0));
                     lane.step({in(0), tmp(0)}, {out(0)}, {.finish = true});
                   },
                   {.scratch_chunks = 1}),
               "rank 0 lane 0 step 1: doubles the contributions of ranks 0 to chunk 0");
  expect_found(pair_of([](Builder& b, int) { b.lane().copy(tmp(0), out(0)); }, {.scratch_chunks = 1}),
               "rank 0 lane 0 step 0: reads scratch 0 of rank 0 before anything is written there");
}

TEST(Verify, messagesThatDoNotMatch) {
  expect_found(pair_of([](Builder& b, int r) {
                 auto lane = b.lane();
                 lane.send(in(0), to(1 - r));
                 if (r == 0) lane.step({in(0), from(1)}, {out(0)}, {.finish = true});
               }),
               "rank 0 sends 1 messages to rank 1 on channel 0, which receives 0");
  // Vectors: chunk 0 where chunk 1 is expected.
  expect_found(pair_of(
                   [](Builder& b, int r) {
                     auto lane = b.lane();
                     for (int c : {0, 1}) lane.send(in(r == 0 ? c : 1 - c), to(1 - r));
                     for (int c : {0, 1}) lane.step({in(c), from(1 - r)}, {out(c)}, {.finish = true});
                   },
                   {.chunks = 2}),
               "expects a message with the size of chunk 0, but rank 1 lane 0 step 0 (send input 1 -> to "
               "0) sends that of chunk 1");
  // A hint that is not true.
  expect_found(pair_of([](Builder& b, int r) {
                 auto lane = b.lane();
                 lane.send(in(0), to(1 - r, out(0)));
                 lane.step({in(0), from(1 - r)}, {out(0)}, {.finish = true});
               }),
               "does not put the message in output 0 of rank 0");
}

TEST(Verify, deadlockShowsTheCycle) {
  const auto programs = pair_of([](Builder& b, int r) {
    auto lane = b.lane();
    lane.step({in(0), from(1 - r)}, {out(0)}, {.finish = true});
    lane.send(in(0), to(1 - r));
  });
  const std::string found = findings(programs);
  EXPECT_NE(found.find("deadlock: 2 of 2 lanes are stuck"), std::string::npos) << found;
  EXPECT_NE(found.find("rank 0 lane 0 step 0 (recv_reduce input 0, from 1 -> output 0) of slice 0 waits "
                       "for a message of rank 1 to rank 0"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("rank 1 lane 0 step 0"), std::string::npos) << found;
  EXPECT_NE(found.find("which is the first again (rank 0 lane 0)"), std::string::npos) << found;
}

TEST(Verify, fusedRingNeedsTwoSlots) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  std::vector<Program> programs;
  for (int r = 0; r < 3; ++r) programs.push_back(ring->build(Topology::flat(3), {.ranks = 3}, r));
  EXPECT_EQ(findings(programs, {.slots = 2}), "");
  expect_found(programs, "waits for room in the FIFO rank 0 to rank 1", {.slots = 1});
}

TEST(Verify, lanesThatRace) {
  const auto racing = [](bool ordered) {
    return pair_of(
        [=](Builder& b, int r) {
          auto a = b.lane(), c = b.lane();
          a.send(in(0), to(1 - r));
          const StepId made = a.step({in(0), from(1 - r)}, {tmp(0)}, {.finish = true});
          c.copy(tmp(0), out(0), {.after = std::span(&made, ordered ? 1 : 0)});
        },
        {.scratch_chunks = 1});
  };
  EXPECT_EQ(findings(racing(true)), "");
  const std::string found = findings(racing(false));
  EXPECT_TRUE(found.find("before anything is written there") != std::string::npos ||
              found.find("nothing orders it") != std::string::npos)
      << found;
}

TEST(Verify, orderByMessagesCounts) {
  // Lane 0 of rank 0 writes scratch and sends; rank 1 answers to lane 1 of rank 0, which reads the scratch:
  // ordered, but only by the messages there and back, and only where rank 1 answers after it has received.
  const auto answer = [](bool after_receiving) {
    return pair_of(
        [=](Builder& b, int r) {
          auto a = b.lane(), c = b.lane();
          if (r == 0) {
            a.copy(in(0), tmp(0), {.size_of = in(0)});
            a.send(in(0), to(1));
            c.step({tmp(0), from(1)}, {out(0)}, {.finish = true});
          } else {
            a.step({from(0), in(0)}, {out(0)}, {.finish = true});
            if (after_receiving)
              a.send(in(0), to(0, {}, 1));
            else
              c.send(in(0), to(0));
          }
        },
        {.scratch_chunks = 1});
  };
  EXPECT_EQ(findings(answer(true)), "");
  expect_found(answer(false),
               "reads scratch 0 of rank 0, and nothing orders it with rank 0 lane 0 step 0 (copy input 0 "
               "-> scratch 0), which writes it");
}

TEST(Verify, lanesThatShareAFifoMustOrderEachOther) {
  const auto sharing = [](bool ordered) {
    return pair_of(
        [=](Builder& b, int r) {
          auto a = b.lane(0), c = b.lane(0);
          const StepId sent = a.send(in(0), to(1 - r));
          const StepId again = c.send(in(1), to(1 - r), {.after = std::span(&sent, ordered ? 1 : 0)});
          a.step({in(0), from(1 - r)}, {out(0)},
                 {.finish = true, .after = std::span(&again, ordered ? 1 : 0)});
          a.step({in(1), from(1 - r)}, {out(1)}, {.finish = true});
        },
        {.chunks = 2});
  };
  EXPECT_EQ(findings(sharing(true)), "");
  EXPECT_NE(findings(sharing(false)), "");
}

TEST(Verify, emptyChunksOrderNothing) {
  // Lane 1 may overwrite tmp(0) with chunk 1 only after lane 0 has sent chunk 0 from there; what tells it
  // so is a message about chunk 1, which is skipped where chunk 1 is empty, but then so is the overwriting:
  // fine. With the dependency behind a step on chunk 1, lane 2 reads too early when chunk 1 is empty.
  const auto programs = pair_of(
      [](Builder& b, int r) {
        auto a = b.lane(), c = b.lane(), d = b.lane();
        a.send(in(0), to(1 - r));
        a.send(in(1), to(1 - r));
        const StepId made = a.step({in(0), from(1 - r)}, {tmp(0)}, {.finish = true});
        a.step({in(1), from(1 - r)}, {out(1)}, {.finish = true});
        const StepId between = c.copy(in(1), tmp(1), {.after = {&made, 1}});
        d.copy(tmp(0), out(0), {.after = {&between, 1}});
      },
      {.chunks = 2, .scratch_chunks = 2});
  EXPECT_EQ(findings(programs), "");
  expect_found(programs, "when other chunks are empty", {.empty_chunks = true});
}

TEST(Verify, directModeSeesEarlyAndLateAccesses) {
  // Broadcast from 0: the sender overwrites its output after sending it.
  const auto programs = pair_of(
      [](Builder& b, int r) {
        auto lane = b.lane();
        if (r == 0) {
          lane.copy(in(0), out(0));
          lane.send(out(0), to(1));
          lane.copy(in(0), out(0));
        } else {
          lane.recv(from(0), out(0));
        }
      },
      {.collective = Collective::broadcast});
  EXPECT_EQ(findings(programs), "");
  expect_found(programs,
               "rank 0 lane 0 step 2: writes output 0 of rank 0 while the message of rank 0 lane 0 step 1",
               {.direct = true});
  // A message that lands early in what the receiver still reads.
  const auto early = pair_of(
      [](Builder& b, int r) {
        auto lane = b.lane();
        if (r == 0) {
          lane.copy(in(0), out(0));
          lane.recv(from(1), tmp(0), {.size_of = out(0)});
          lane.send(in(0), to(1, out(0)));
        } else {
          auto other = b.lane();
          lane.recv(from(0, 1), tmp(0), {.size_of = out(0)});
          (void)other;
        }
      },
      {.collective = Collective::broadcast, .scratch_chunks = 1});
  EXPECT_NE(findings(early, {.direct = true}), "");
}

TEST(Verify, barrierNeedsEveryPair) {
  const auto barrier = [](bool back) {
    return pair_of(
        [=](Builder& b, int r) {
          auto lane = b.lane();
          if (r == 0 || back) lane.send(tmp(0), to(1 - r), {.size_of = tmp(0)});
          if (r == 1 || back) lane.recv(from(1 - r), tmp(1), {.size_of = tmp(0)});
        },
        {.collective = Collective::barrier, .scratch_chunks = 2});
  };
  EXPECT_EQ(findings(barrier(true)), "");
  EXPECT_EQ(findings(barrier(false)), "rank 0: may leave the barrier before ranks 1 have entered it\n");
}

TEST(Verify, otherRanksOrNone) {
  EXPECT_EQ(findings({}), "there are no programs\n");
  auto programs = pair_of([](Builder& b, int) { b.lane().copy(in(0), out(0)); });
  std::swap(programs[0], programs[1]);
  expect_found(programs, "rank 0: the program's rank is 1, expected 0");
}

TEST(Verify, promisesThatDoNotHoldAreFound) {
  Algorithm liar = *find_algorithm(Collective::allreduce, "ring");
  EXPECT_TRUE(verify_algorithm(liar, {.ranks = 4}).ok());
  liar.canonical = true;
  EXPECT_NE(verify_algorithm(liar, {.ranks = 4})
                .text()
                .find("is not made by one step with the contributions 0..3 in order"),
            std::string::npos);
  liar.canonical = false;
  liar.keeps_order = true;
  std::vector<Program> programs;
  for (int r = 0; r < 4; ++r) programs.push_back(liar.build(Topology::flat(4), {.ranks = 4}, r));
  liar.refuses = [](const Topology&, const Problem&) { return std::string(); };
  EXPECT_NE(verify_programs(liar, {.ranks = 4, .commutative = false}, programs)
                .text()
                .find("is not combined in rank order"),
            std::string::npos);
  liar.keeps_order = false;
  liar.pairwise_sizes = true;
  EXPECT_NE(verify_algorithm(liar, {.ranks = 4}).text().find("pairwise_sizes"), std::string::npos);
}

class ProofOfAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(ProofOfAlgorithm, isProvedForAllItsProblems) {
  const Algorithm& algorithm = *GetParam();
  int proved = 0;
  for (const Problem& problem : default_problems(algorithm, 64)) {
    const Report report = verify_algorithm(algorithm, problem);
    ASSERT_TRUE(report.ok()) << report.text();
    ++proved;
  }
  EXPECT_GE(proved, algorithm.uses_topology ? 0 : 5);  // the others: places_test.cpp
}

TEST_P(ProofOfAlgorithm, isProvedForManyRanks) {
  const Algorithm& algorithm = *GetParam();
  for (int ranks : {128, 200}) {
    const Problem problem{.collective = algorithm.collective, .ranks = ranks};
    if (!algorithm.refuses(Topology::flat(problem.ranks), problem).empty()) continue;
    const Report report = verify_algorithm(algorithm, problem);
    EXPECT_TRUE(report.ok()) << report.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Verify, ProofOfAlgorithm,
                         testing::ValuesIn(all_algorithms().begin(), all_algorithms().end()),
                         [](const auto& a) {
                           return std::string(name_of(a.param->collective)) + "_" +
                                  std::string(a.param->name);
                         });

}  // namespace
}  // namespace tamaki
