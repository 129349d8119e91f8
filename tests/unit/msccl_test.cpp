// MSCCL schedules: ours written and read back are proved again; small ones by hand; faults named with file
// and line.
#include "schedule/msccl.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/goal.hpp"
#include "verify/interpreter.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

std::vector<Program> programs_of(const Algorithm& algorithm, const Topology& topology) {
  std::vector<Program> programs;
  for (int r = 0; r < topology.ranks(); ++r)
    programs.push_back(
        algorithm.build(topology, {.collective = algorithm.collective, .ranks = topology.ranks()}, r));
  return programs;
}

TEST(Msccl, everyAlgorithmComesBackRight) {
  int trips = 0;
  for (const Algorithm* algorithm : all_algorithms())
    for (int p : {1, 2, 3, 4, 6})
      for (const Topology& topology :
           {Topology::flat(p), Topology::torus({{p, true}}, 2), Topology::rails(p, 1)}) {
        if (!algorithm->refuses(topology, {.collective = algorithm->collective, .ranks = p}).empty())
          continue;
        const auto xml = schedule_to_msccl(programs_of(*algorithm, topology));
        const Collective c = algorithm->collective;
        if (c == Collective::gather || c == Collective::scatter || c == Collective::barrier) {
          ASSERT_FALSE(xml);
          EXPECT_NE(xml.error().message.find("MSCCL has no"), std::string::npos);
          continue;
        }
        ASSERT_TRUE(xml) << xml.error().message;
        const auto back = schedule_from_msccl(*xml, "own.xml");
        ASSERT_TRUE(back) << algorithm->name << ": " << back.error().message;
        const Report report = verify(*back);
        EXPECT_TRUE(report.ok()) << algorithm->name << ": " << report.text();
        EXPECT_EQ((*back)[0].algorithm, algorithm->name);
        if (p <= 3) {
          EXPECT_EQ(interpret(*back, {.slots = 2}), "") << algorithm->name;
        }
        ++trips;
        if (!algorithm->uses_topology) break;
      }
  EXPECT_GT(trips, 100);
}

/// Two ranks, in place, on buffers that MSCCL takes for the input: each sends one half, adds the other's to
/// its half, and sends the sum back; a nop waits for a second tb.
std::string in_place_pair() {
  std::string xml =
      "<algo name=\"pair\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" "
      "coll=\"allreduce\" "
      "inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n";
  for (int r : {0, 1}) {
    const std::string me = std::to_string(r), other = std::to_string(1 - r);
    xml += "<gpu id=\"" + me + "\" i_chunks=\"2\" o_chunks=\"0\" s_chunks=\"1\">\n<tb id=\"0\" send=\"" +
           other + "\" recv=\"" + other + "\" chan=\"0\">\n" +
           "<step s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"" + other +
           "\" dstbuf=\"s\" dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n" +
           "<step s=\"1\" type=\"r\" srcbuf=\"i\" srcoff=\"" + me +
           "\" dstbuf=\"s\" dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"1\"/>\n" +
           "<step s=\"2\" type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"i\" dstoff=\"-1\" cnt=\"0\" "
           "depid=\"1\" deps=\"0\" "
           "hasdep=\"0\"/>\n" +
           "<step s=\"3\" type=\"s\" srcbuf=\"i\" srcoff=\"" + me + "\" dstbuf=\"i\" dstoff=\"" + me +
           "\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n" +
           "<step s=\"4\" type=\"r\" srcbuf=\"i\" srcoff=\"" + other + "\" dstbuf=\"i\" dstoff=\"" + other +
           "\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n</tb>\n" +
           "<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\">\n<step s=\"0\" type=\"re\" srcbuf=\"s\" "
           "srcoff=\"0\" dstbuf=\"i\" dstoff=\"" +
           me + "\" cnt=\"1\" depid=\"0\" deps=\"1\" hasdep=\"1\"/>\n</tb>\n</gpu>\n";
  }
  return xml + "</algo>\n";
}

TEST(Msccl, schedulesInPlaceAreRead) {
  const auto programs = schedule_from_msccl(in_place_pair(), "pair.xml");
  ASSERT_TRUE(programs) << programs.error().message;
  const Report report = verify(*programs);
  EXPECT_TRUE(report.ok()) << report.text();
}

TEST(Msccl, aWaitThatIsLeftOutIsFoundByTheProof) {
  std::string xml = in_place_pair();
  for (std::size_t at; (at = xml.find("depid=\"1\" deps=\"0\"")) != std::string::npos;)
    xml.replace(at, 18, "depid=\"-1\" deps=\"-1\"");
  const auto programs = schedule_from_msccl(xml, "pair.xml");
  ASSERT_TRUE(programs) << programs.error().message;
  EXPECT_FALSE(verify(*programs).ok());
}

TEST(Msccl, faultsAreNamedWithFileAndLine) {
  const auto error = [](std::string from, const std::string& to) {
    std::string xml = in_place_pair();
    xml.replace(xml.find(from), from.size(), to);
    const auto programs = schedule_from_msccl(xml, "pair.xml");
    return programs ? std::string("none") : programs.error().message;
  };
  EXPECT_EQ(error("type=\"re\"", "type=\"add\""),
            "pair.xml:11: type is \"add\", must be one of nop, s, r, cpy, re, rcs, rrc, rrs, rrcs");
  EXPECT_EQ(error("coll=\"allreduce\"", "coll=\"scan\"").substr(0, 29), "pair.xml:1: coll is \"scan\", m");
  EXPECT_EQ(error("ngpus=\"2\"", "ngpus=\"3\""), "pair.xml:1: gpu 2 is missing");
  EXPECT_EQ(error("ngpus=\"2\"", "ngpus=\"two\""),
            "pair.xml:1: ngpus of <algo> is \"two\", must be 1..65535");
  EXPECT_EQ(error("gpu id=\"1\"", "gpu id=\"0\""), "pair.xml:14: gpu 0 twice");
  EXPECT_EQ(error("depid=\"0\" deps=\"1\"", "depid=\"0\" deps=\"9\""),
            "pair.xml:11: depends on step 9 of tb 0, which there is not");
  EXPECT_EQ(error("tb id=\"1\"", "tb id=\"7\""),
            "pair.xml:10: tb is not number 1 of its gpu, as its place is");
  EXPECT_EQ(error("send=\"1\" recv=\"1\"", "send=\"-1\" recv=\"1\""),
            "pair.xml:4: sends, but its tb has no send");
  EXPECT_EQ(error("srcbuf=\"i\"", "srcbuf=\"x\""), "pair.xml:4: srcbuf is \"x\", must be i, o or s");
  EXPECT_NE(error("srcoff=\"1\"", "srcoff=\"5\"").find("is outside of 0..1"), std::string::npos);
  EXPECT_NE(error("</algo>", "").find("pair.xml:"), std::string::npos);
  EXPECT_FALSE(schedule_from_msccl("", "empty.xml"));
}

TEST(Goal, saysWhatIsSentAndWhatWaits) {
  const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
  const auto text =
      schedule_to_goal(programs_of(*ring, Topology::flat(2)), {.bytes = 1001, .ns_per_byte = 0.05});
  ASSERT_TRUE(text);
  EXPECT_EQ(
      *text,
      "num_ranks 2\n\n"
      "rank 0 {\nl1: send 501b to 1 tag 0\nl2: recv 500b from 1 tag 0\nl2 requires l1\nl3: calc 25\nl3 "
      "requires l2\n"
      "l4: send 500b to 1 tag 0\nl4 requires l3\nl5: recv 501b from 1 tag 0\nl5 requires l4\nl6: calc 26\n"
      "l6 requires l5\n}\n\n"
      "rank 1 {\nl1: send 500b to 0 tag 0\nl2: recv 501b from 0 tag 0\nl2 requires l1\nl3: calc 26\nl3 "
      "requires l2\n"
      "l4: send 501b to 0 tag 0\nl4 requires l3\nl5: recv 500b from 0 tag 0\nl5 requires l4\nl6: calc 25\n"
      "l6 requires l5\n}\n");
}

/// Every message that one rank sends another receives, with the same bytes and tag.
TEST(Goal, sendsMatchReceives) {
  for (const Algorithm* algorithm : all_algorithms()) {
    const Topology topology = Topology::flat(5);
    if (!algorithm->refuses(topology, {.collective = algorithm->collective, .ranks = 5}).empty()) continue;
    const auto text = schedule_to_goal(programs_of(*algorithm, topology), {.bytes = 123});
    ASSERT_TRUE(text);
    std::map<std::string, int> open;
    int rank = -1;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      int other = 0, tag = 0;
      char bytes[32];
      if (std::sscanf(line.c_str(), "rank %d {", &rank) == 1) continue;
      const std::size_t colon = line.find(": ");
      if (colon == std::string::npos) continue;
      const char* op = line.c_str() + colon + 2;
      if (std::sscanf(op, "send %31s to %d tag %d", bytes, &other, &tag) == 3)
        ++open[std::to_string(rank) + ">" + std::to_string(other) + ":" + std::to_string(tag) + " " +
               bytes];
      if (std::sscanf(op, "recv %31s from %d tag %d", bytes, &other, &tag) == 3)
        --open[std::to_string(other) + ">" + std::to_string(rank) + ":" + std::to_string(tag) + " " +
               bytes];
    }
    for (const auto& [message, left] : open) EXPECT_EQ(left, 0) << algorithm->name << ": " << message;
  }
}

}  // namespace
}  // namespace tamaki
