// Algorithms that depend on where the ranks are, over many topologies: proved, held against their closed
// forms, and run by the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/shapes/hamiltonian.hpp"
#include "algorithms/shapes/torus.hpp"
#include "algorithms/shapes/torus_trees.hpp"
#include "support/counts.hpp"
#include "verify/interpreter.hpp"
#include "verify/places.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

/// More are proved by `tamaki verify`.
constexpr int kMostRanks = 12;

std::vector<const Algorithm*> placed_algorithms() {
  std::vector<const Algorithm*> placed;
  for (const Algorithm* algorithm : all_algorithms())
    if (algorithm->uses_topology) placed.push_back(algorithm);
  return placed;
}

class EveryPlace : public testing::TestWithParam<const Algorithm*> {
 protected:
  /// body(place, problem, programs) for everything that the algorithm serves; false ends it.
  template <class Body>
  void each_problem(const Body& body) const {
    int served = 0;
    for (const NamedTopology& place : proof_places(kMostRanks))
      for (const Problem& problem : problems_on(*GetParam(), place.topology)) {
        ++served;
        std::vector<Program> programs;
        for (int r = 0; r < problem.ranks; ++r)
          programs.push_back(GetParam()->build(place.topology, problem, r));
        body(place, problem, programs);
        if (HasFatalFailure()) return;
      }
    EXPECT_GE(served, 5);
  }
};

TEST_P(EveryPlace, isProved) {
  each_problem(
      [&](const NamedTopology& place, const Problem& problem, const std::vector<Program>& programs) {
        const Report report = verify_programs(*GetParam(), problem, programs, {.topology = place.topology});
        ASSERT_TRUE(report.ok()) << place.name << ": " << report.text();
      });
}

TEST_P(EveryPlace, keepsItsClosedForm) {
  each_problem(
      [&](const NamedTopology& place, const Problem& problem, const std::vector<Program>& programs) {
        const ClosedForm promised = GetParam()->closed_form(place.topology, problem);
        const test::Counts counted = test::count(programs);
        const std::string text = place.name + ": " + describe(*GetParam(), problem);
        if (promised.rounds != ClosedForm::kNotStated) {
          ASSERT_EQ(promised.rounds, counted.rounds) << text;
        }
        ASSERT_EQ(promised.chunks_sent, counted.chunks_sent) << text;
        ASSERT_EQ(promised.chunks_received, counted.chunks_received) << text;
        ASSERT_EQ(promised.chunks, programs[0].chunks) << text;
      });
}

/// The second opinion, which shares no code with the proof.
TEST_P(EveryPlace, isRightWhenInterpreted) {
  each_problem([&](const NamedTopology& place, const Problem& problem,
                   const std::vector<Program>& programs) {
    const bool plain = problem.lanes == 1 && problem.radix == 2 && problem.pieces == 1 && problem.root <= 1;
    if (problem.ranks > 8 || !plain) return;  // time
    ASSERT_EQ(second_opinion(*GetParam(), problem, programs), "")
        << place.name << ": " << describe(*GetParam(), problem);
  });
}

/// Another topology of the same size, or none, is refused or served; never followed out of bounds.
TEST_P(EveryPlace, refusesWhatItDoesNotKnow) {
  for (const Topology& topology : {Topology{}, Topology::flat(3)}) {
    const Problem problem{.collective = GetParam()->collective, .ranks = 4};
    if (!GetParam()->refuses(topology, problem).empty()) continue;
    for (int r = 0; r < 4; ++r) EXPECT_EQ(GetParam()->build(topology, problem, r).ranks, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Placed, EveryPlace, testing::ValuesIn(placed_algorithms()), [](const auto& a) {
  return std::string(name_of(a.param->collective)) + "_" + std::string(a.param->name);
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryPlace);

/// Cost of a build is that of the rank's own steps: machines of the sizes that this is for.
TEST(Placed, onRanksOfLargeMachinesStaySmall) {
  struct {
    const char *algorithm, *place;
    std::size_t steps;
  } cases[] = {{"torus", "torus:48x6x48:p6", 110},
               {"torus", "torus:24x23x24", 110},
               {"torus", "torus:8x8x8", 108},
               {"torus", "torus:13824", 12},
               {"torus", "torus:48x6x48:p1", 20},
               {"torus", "torus:24x2x24x2x3x2:p6", 220},
               {"hamiltonian", "torus:48x6x48:p6", 60},
               {"hierarchical", "hosts:1728x8", 40},
               {"rail", "rails:100x8", 40}};
  for (const auto& c : cases) {
    std::string error;
    const Topology topology = parse_place(c.place, &error);
    ASSERT_EQ(error, "");
    const Algorithm* algorithm = find_algorithm(Collective::allreduce, c.algorithm);
    const Program program = algorithm->build(topology, {.ranks = topology.ranks()}, topology.ranks() / 3);
    EXPECT_LE(program.steps.size(), c.steps) << c.algorithm << " " << c.place;
  }
}

/// Each port has its share of the streams to carry, where there are streams enough to choose from.
TEST(Placed, torusLoadsAllPortsAlike) {
  struct {
    const char* place;
    int pieces;
    double least;  // mean load of a port, of the busiest one's
  } cases[] = {{"torus:48x6x48:p6", 8, 0.97}, {"torus:24x23x24", 8, 0.97},
               {"torus:8x8x8", 1, 1.0},       {"torus:8x8x8", 8, 1.0},
               {"torus:13824", 1, 1.0},       {"torus:48x6x48:p1", 1, 1.0},
               {"torus:16x4", 8, 0.95},       {"torus:24x2x24x2x3x2:p6", 8, 0.9}};
  for (const auto& c : cases) {
    std::string error;
    const Grid grid(parse_place(c.place, &error));
    ASSERT_EQ(error, "");
    const TorusPlan plan = torus_plan(grid, TorusParts::both, c.pieces);
    std::set<int> links;
    for (const TorusTask& task : plan.tasks) links.insert(task.link);
    std::vector<double> loads(std::min(links.size(), static_cast<std::size_t>(grid.ports())), 0.0);
    for (const TorusTask& task : plan.tasks) {
      const TorusStream& stream = plan.streams[task.stream];
      loads[task.lane % loads.size()] +=
          double(TorusPlan::width(grid, stream, task.stage)) * (grid.size(stream.order[task.stage]) - 1);
    }
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    EXPECT_DOUBLE_EQ(sum, 2.0 * (grid.points() - 1) * static_cast<double>(plan.streams.size()));
    EXPECT_GE(sum / static_cast<double>(loads.size()) / *std::max_element(loads.begin(), loads.end()),
              c.least)
        << c.place;
  }
}

/// The plain bucket: no stream waits for another's messages, also where sides are uneven.
TEST(Placed, torusTakesTheRoundsOfOneStream) {
  for (const char* place : {"torus:48x6x48:p6", "torus:4x6x5", "torus:16x4"}) {
    std::string error;
    const Topology topology = parse_place(place, &error);
    ASSERT_EQ(error, "");
    int rounds = 0;
    for (const GridDimension& d : topology.grid) rounds += 2 * (d.size - 1);
    const ClosedForm form =
        find_algorithm(Collective::allreduce, "torus")->closed_form(topology, {.ranks = topology.ranks()});
    EXPECT_EQ(form.rounds, rounds) << place;
  }
}

/// On a torus of equal sides the rounds are those of the paper: all streams go in step.
TEST(Placed, torusOfEqualSidesTakesTheRoundsOfTheBucket) {
  for (const char* place : {"torus:8x8x8", "torus:5x5", "torus:2x2x2", "torus:7", "torus:3x3x3x3"}) {
    std::string error;
    const Topology topology = parse_place(place, &error);
    const ClosedForm form =
        find_algorithm(Collective::allreduce, "torus")->closed_form(topology, {.ranks = topology.ranks()});
    int rounds = 0;
    for (const GridDimension& d : topology.grid) rounds += 2 * (d.size - 1);
    EXPECT_EQ(form.rounds, rounds) << place;
    EXPECT_EQ(form.chunks, std::int64_t{topology.ranks()} * topology.ports) << place;
  }
}

/// The trees span the torus, and no link carries two of them in one direction.
TEST(Placed, torusTreesShareNoLink) {
  for (const char* text : {"torus:3x3x3", "torus:5x4x7", "torus:4x3", "torus:6", "torus:3x1x5",
                           "torus:7x3x3", "torus:3x5x4x3"}) {
    std::string error;
    const Topology topology = parse_place(text, &error);
    const int p = topology.ranks();
    for (const auto& [root, kind] : {std::pair{0, TreeLinks::few},
                                     {p / 2, TreeLinks::few},
                                     {p - 1, TreeLinks::few},
                                     {0, TreeLinks::all},
                                     {p / 2, TreeLinks::all},
                                     {p - 1, TreeLinks::all}}) {
      if (!refuse_without_torus_trees(topology, {.ranks = p}, kind).empty()) {
        EXPECT_EQ(kind, TreeLinks::few);
        EXPECT_EQ(topology.grid.size(), 4u);
        continue;
      }
      const TorusTrees trees(topology, root, kind);
      std::set<std::pair<int, int>> links;
      for (int t = 0; t < trees.count(); ++t)
        for (int r = 0; r < p; ++r) {
          if (r == root) continue;
          EXPECT_TRUE(links.emplace(trees.parent(t, r), r).second)
              << text << " root " << root << " tree " << t;
          int hops = 0;
          for (int at = r; at != root && hops <= p; ++hops) at = trees.parent(t, at);
          EXPECT_LE(hops, p) << text << ": rank " << r << " is not in tree " << t;
        }
    }
  }
}

/// With many pieces the trees have several lanes each: more pieces than the problems of the other tests
/// have.
TEST(Placed, torusTreesOfManyPiecesHaveSeveralLanes) {
  for (const auto& [text, pieces] : {std::pair{"torus:3x3", 18}, {"torus:3x3x3", 25}}) {
    std::string error;
    const Topology topology = parse_place(text, &error);
    for (const char* name : {"trinaryx", "trinaryx6"})
      for (Collective collective : {Collective::allreduce, Collective::reduce, Collective::broadcast}) {
        const Algorithm* algorithm = find_algorithm(collective, name);
        Problem problem{.collective = collective, .ranks = topology.ranks()};
        const std::size_t few = algorithm->build(topology, problem, 1).lanes.size();
        problem.pieces = pieces;
        const std::size_t many = algorithm->build(topology, problem, 1).lanes.size();
        EXPECT_EQ(many, few * 2 * topology.grid.size()) << text << " " << name;
        const Report report = verify_algorithm(*algorithm, problem, {.topology = topology});
        EXPECT_TRUE(report.ok()) << text << ": " << report.text();
      }
  }
}

/// Every ring visits every point once, along links, and no link is on two rings; as many rings as promised.
TEST(Placed, hamiltonianRingsShareNoLink) {
  const auto look = [](const Topology& topology, const std::string& name) {
    if (!refuse_without_hamiltonian_rings(topology, {.ranks = topology.ranks()}).empty()) return false;
    const Grid grid(topology);
    const auto found = hamiltonian_rings(grid);
    std::set<std::pair<int, int>> links;
    for (const std::vector<int>& ring : found->rings) {
      EXPECT_EQ(std::set<int>(ring.begin(), ring.end()).size(), static_cast<std::size_t>(grid.points()))
          << name;
      EXPECT_EQ(ring.size(), static_cast<std::size_t>(grid.points())) << name;
      for (std::size_t i = 0; i < ring.size() && ring.size() > 2; ++i) {
        const int a = ring[i], b = ring[(i + 1) % ring.size()];
        int apart = 0;
        for (int d = 0; d < grid.dimensions(); ++d) {
          const int by = std::abs(grid.coordinate(a, d) - grid.coordinate(b, d));
          apart += grid.wraps(d) ? std::min(by, grid.size(d) - by) : by;
        }
        EXPECT_EQ(apart, 1) << name << ": " << a << " to " << b;
        EXPECT_TRUE(links.emplace(std::min(a, b), std::max(a, b)).second) << name << ": " << a << "-" << b;
      }
    }
    int rings = 0, odd = 0, even = 0;
    for (int d = 0; d < grid.dimensions(); ++d)
      ++(grid.wraps(d) && grid.size(d) > 2 ? rings : grid.size(d) % 2 != 0 ? odd : even);
    const int expected = rings + std::min(even, (even + odd) / 2);
    EXPECT_EQ(std::ssize(found->rings), std::max(1, expected)) << name;
    return true;
  };
  int served = 0;
  for (const NamedTopology& place : proof_places(4096)) served += look(place.topology, place.name);
  EXPECT_GT(served, 150);
  const auto torus = [&](std::vector<int> sides) {
    std::vector<GridDimension> grid;
    std::string name = "torus";
    for (int side : sides) grid.push_back({side, true}), name += " " + std::to_string(side);
    look(Topology::torus(grid, 6), name);
  };
  for (int a = 2; a <= 12; ++a)
    for (int b = 2; b <= 12; ++b) torus({a, b});
  for (int a = 2; a <= 7; ++a)
    for (int b = 2; b <= a; ++b)
      for (int c = 2; c <= b; ++c) torus({a, b, c});
  for (std::vector<int> sides : {std::vector{4, 4, 33},
                                 {3, 3, 50},
                                 {16, 16, 16},
                                 {3, 4, 5, 6},
                                 {4, 4, 4, 4},
                                 {3, 3, 3, 3, 3},
                                 {2, 2, 2, 2, 2, 2},
                                 {4, 3, 2, 4, 2, 4, 2},
                                 {3, 3, 3, 3, 3, 3},
                                 {3, 3, 3, 3, 3, 3, 3}})
    torus(sides);
}

TEST(Places, textIsReadOrItsFaultNamed) {
  std::string error;
  const auto read = [&](const char* text) { return parse_place(text, &error); };
  EXPECT_EQ(read("torus:4x3x2"), Topology::torus({{4, true}, {3, true}, {2, true}}, 5));
  EXPECT_EQ(error, "");
  EXPECT_EQ(read("grid:4x3m:p2"), Topology::torus({{4, true}, {3, false}}, 2));
  EXPECT_EQ(read("rails:3x2"), Topology::rails(3, 2));
  EXPECT_EQ(read("hosts:2+1"), hosts_of({2, 1}));
  EXPECT_EQ(read("hosts:2x4:n2"), hosts_of({4, 4}, 2));
  EXPECT_EQ(read("flat:5"), Topology::flat(5));
  for (const char* bad :
       {"", "torus", "torus:", "torus:4x", "torus:0", "torus:70000", "torus:300x300", "torus:4:n2",
        "hosts:2:p1", "hosts:1x2x3", "ring:4", "flat:2x2", "torus:4:p", "torus:4:p0", "mesh:4m"}) {
    read(bad);
    EXPECT_NE(error.find(std::string("\"") + bad + "\" is no topology"), std::string::npos)
        << bad << ": " << error;
  }
}

}  // namespace
}  // namespace tamaki
