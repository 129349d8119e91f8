#include "schedule/draw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tamaki {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++n;
  return n;
}

/// Tags open and close in order, attributes are quoted, nothing stands outside of the one root.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t roots = 0;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '>') return false;
    if (xml[i] == '&') {
      const std::size_t end = xml.find(';', i);
      if (end == std::string::npos || end - i > 6) return false;
    }
    if (xml[i] != '<') continue;
    const std::size_t end = xml.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    if (tag.find('<') != std::string::npos || count(tag, "\"") % 2 != 0) return false;
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" /", 1) - (tag[0] == '/'));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      roots += open.empty();
      open.push_back(name);
    }
    i = end;
  }
  return open.empty() && roots == 1;
}

std::vector<Program> build_all(const Algorithm& algorithm, const Problem& problem) {
  std::vector<Program> programs;
  for (int r = 0; r < problem.ranks; ++r)
    programs.push_back(algorithm.build(Topology::flat(problem.ranks), problem, r));
  return programs;
}

TEST(Draw, everyAlgorithmHasABoxAStepAndAnArrowAMessage) {
  for (const Algorithm* algorithm : all_algorithms())
    for (int ranks : {1, 4, 8}) {
      const Problem problem{.collective = algorithm->collective, .ranks = ranks, .lanes = 2};
      if (!algorithm->refuses(Topology::flat(problem.ranks), problem).empty()) continue;
      const std::vector<Program> programs = build_all(*algorithm, problem);
      int steps = 0, messages = 0;
      for (const Program& p : programs)
        for (int l = 0; l < static_cast<int>(p.lanes.size()); ++l)
          for (LaneCursor c(p, l); !c.done(); c.advance()) {
            const ExpandedStep& s = c.current();
            ++steps;
            for (int k = 0; k < s.step->sources; ++k) messages += s.sources[k].kind == Operand::Kind::peer;
          }
      const std::string svg = draw_svg(programs);
      EXPECT_TRUE(well_formed(svg)) << algorithm->name;
      EXPECT_EQ(count(svg, "<g><title>rank "), steps) << algorithm->name;
      EXPECT_EQ(count(svg, "stroke-opacity=\"0.7\" marker-end"), messages) << algorithm->name;
      EXPECT_NE(svg.find(std::string(algorithm->name)), std::string::npos);
      EXPECT_EQ(count(svg, ">rank "), ranks + steps);  // labels of rows, and titles of boxes
      EXPECT_EQ(svg.find("nan"), std::string::npos);
      EXPECT_EQ(svg.find("never run"), std::string::npos);
    }
}

TEST(Draw, timeFollowsMessages) {
  // send (0..1), message, recv_reduce ...: a ring of 4 takes 7 steps and 6 messages one after the other.
  const std::string svg = draw_svg(build_all(*find_algorithm(Collective::allreduce, "ring"), {.ranks = 4}));
  EXPECT_NE(svg.find("28 steps, 24 messages, 10.6 units of time"), std::string::npos);
  for (const char* name : {">send<", ">recv_reduce_send<", ">recv_reduce_copy_send<", ">recv_copy_send<",
                           ">recv<", ">finishes<"})
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  EXPECT_EQ(svg.find(">reduce<"), std::string::npos);
}

TEST(Draw, namesAreEscaped) {
  Builder b({.algorithm = "<a & \"b\">"});
  b.lane().copy(in(0), out(0), {.finish = true});
  const std::string svg = draw_svg(std::vector{b.take()});
  EXPECT_TRUE(well_formed(svg));
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;"), std::string::npos);
}

TEST(Draw, saysWhatCannotBeDrawn) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  EXPECT_NE(draw_svg({}).find("no programs"), std::string::npos);
  std::vector<Program> programs = build_all(*ring, {.ranks = 4});
  programs[2].steps[0].width = 9;
  const std::string faulty = draw_svg(programs);
  EXPECT_TRUE(well_formed(faulty));
  EXPECT_NE(faulty.find("rank 2 lane 0 step 0: width 9"), std::string::npos);
  programs = build_all(*ring, {.ranks = 4});
  std::swap(programs[0], programs[1]);
  EXPECT_NE(draw_svg(programs).find("program 0 of 4 says that it is rank 1 of 4"), std::string::npos)
      << draw_svg(programs);
  EXPECT_NE(draw_svg(build_all(*ring, {.ranks = 65})).find("65 ranks and"), std::string::npos);
  // A schedule that gets stuck is drawn as far as it goes.
  programs.clear();
  for (int r = 0; r < 2; ++r) {
    Builder b({.algorithm = "stuck", .ranks = 2, .rank = r});
    auto lane = b.lane();
    lane.copy(in(0), out(0));
    lane.step({in(0), from(1 - r)}, {out(0)}, {.finish = true});
    programs.push_back(b.take());
  }
  const std::string stuck = draw_svg(programs);
  EXPECT_TRUE(well_formed(stuck));
  EXPECT_NE(stuck.find("2 steps never run"), std::string::npos);
}

}  // namespace
}  // namespace tamaki
