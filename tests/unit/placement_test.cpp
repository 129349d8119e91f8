// Ranks on machines: placements, the files of launchers, groups of training, and what is recognized.
#include "topology/placement/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/xml.hpp"
#include "topology/draw.hpp"
#include "topology/placement/files.hpp"
#include "topology/placement/groups.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

Machine machine(std::string_view name) {
  Result<Machine> made = machine_from(name);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : Machine{};
}

Placement placed(const Machine& m, std::int32_t ranks, RankOrder order = RankOrder::by_slot) {
  Result<Placement> made = place(m, ranks, order);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : Placement{};
}

std::vector<std::int32_t> hosts_of(const Placement& placement) {
  std::vector<std::int32_t> hosts;
  for (const Place& p : placement.ranks) hosts.push_back(p.host);
  return hosts;
}

TEST(Placement, Orders) {
  const Machine m = machine("hosts:3x2");
  EXPECT_EQ(hosts_of(placed(m, 5)), (std::vector<std::int32_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(hosts_of(placed(m, 5, RankOrder::by_host)), (std::vector<std::int32_t>{0, 1, 2, 0, 1}));
  EXPECT_FALSE(place(m, 7));
  EXPECT_FALSE(place(m, 0));
  EXPECT_FALSE(place(m, 2, RankOrder::first_dimension_fastest));
  EXPECT_EQ(hosts_of(placed(machine("torus:2x3"), 6, RankOrder::first_dimension_fastest)),
            (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(placed(m, 6), place_all(m));
}

TEST(Placement, ShuffledIsAPermutationThatTheSeedDecides) {
  const Placement whole = place_all(machine("rails:5x4"));
  const Placement a = shuffled(whole, 1);
  EXPECT_EQ(a, shuffled(whole, 1));
  EXPECT_NE(a, shuffled(whole, 2));
  EXPECT_NE(a, whole);
  Placement sorted = a;
  std::sort(sorted.ranks.begin(), sorted.ranks.end());
  EXPECT_EQ(sorted, whole);
  // Every place is first about equally often: 3 places, 3,000 seeds, five standard deviations (26) each way.
  std::map<std::int32_t, int> first;
  const Placement three = place_all(machine("torus:3"));
  for (std::uint64_t seed = 0; seed < 3000; ++seed) ++first[shuffled(three, seed).ranks[0].host];
  for (std::int32_t host = 0; host < 3; ++host) EXPECT_NEAR(first[host], 1000, 130) << host;
}

TEST(Placement, SlotsHaveGpusNicsAndDomains) {
  const Machine m = machine("sakuraone");
  const Place p = place_of_slot(m, 3, 5);
  EXPECT_EQ(p, (Place{3, 5, 1, 5, 5}));
  Machine cpu = machine("fugaku:2x3x2");
  cpu.kinds[0].slots = 8;
  for (std::int32_t s = 0; s < 8; ++s) EXPECT_EQ(place_of_slot(cpu, 0, s).numa, s / 2);
}

TEST(Placement, FilesGoBothWays) {
  for (const char* name : {"torus:4x3x2", "fugaku:4x6x4", "hosts:3x4", "sakuraone:4"}) {
    const Machine m = machine(name);
    std::vector<std::int32_t> order(static_cast<std::size_t>(m.slots()));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(7);
    std::shuffle(order.begin(), order.end(), random);
    const Placement before = restrict_to(place_all(m), order);
    const auto expect_same = [&](const Result<Placement>& after, const std::string& text) {
      ASSERT_TRUE(after) << after.error().message;
      EXPECT_EQ(hosts_of(*after), hosts_of(before)) << name << "\n" << text.substr(0, 200);
    };
    expect_same(placement_from_vcoord(m, placement_to_vcoord(m, before), "v"),
                placement_to_vcoord(m, before));
    expect_same(placement_from_hostlist(m, placement_to_hostlist(m, before), "h"),
                placement_to_hostlist(m, before));
    const std::string rankfile = placement_to_rankfile(m, before);
    const Result<Placement> after = placement_from_rankfile(m, rankfile, "r");
    expect_same(after, rankfile);
    for (std::size_t r = 0; r < before.ranks.size(); ++r)
      EXPECT_EQ(after->ranks[r].numa, before.ranks[r].numa) << name << " rank " << r;
  }
}

TEST(Placement, ReadsWhatLaunchersTake) {
  const Machine grid = machine("fugaku:4x6x4");
  const Placement v =
      placement_from_vcoord(grid, "# ours\n(1,2,3) core=12\n ( 0, 0 ,0 )\n(1,2,3) core=12 mem=1024\n", "v")
          .value();
  EXPECT_EQ(hosts_of(v), (std::vector<std::int32_t>{1 * 24 + 2 * 4 + 3, 0, 35}));
  EXPECT_EQ(v.ranks[2].slot, 1);
  Machine named = machine("hosts:4x2");
  named.host_names = {"node01", "node02", "node03", "node10"};
  named.kinds[0].sockets = {{}, {}};
  named.kinds[0].numa = {{0, 4}, {1, 4}};
  EXPECT_EQ(hosts_of(placement_from_hostlist(named, "node[01-03],node10*2\nnode02", "h").value()),
            (std::vector<std::int32_t>{0, 1, 2, 3, 3, 1}));
  const Placement r =
      placement_from_rankfile(named,
                              "rank 1=node10 slot=1:2\nrank 0=+n1 slot=2-3\nrank 2 = node01 slot=p5\n", "r")
          .value();
  EXPECT_EQ(hosts_of(r), (std::vector<std::int32_t>{1, 3, 0}));
  EXPECT_EQ(r.ranks[0].numa, 0);
  EXPECT_EQ(r.ranks[1].numa, 1);
  EXPECT_EQ(r.ranks[2].numa, 1);
}

TEST(Placement, WrongFilesNameFileAndLine) {
  const Machine m = machine("torus:4x4");
  const auto expect = [](const Result<Placement>& read, const std::string& part) {
    ASSERT_FALSE(read) << part;
    EXPECT_NE(read.error().message.find(part), std::string::npos)
        << read.error().message << " lacks " << part;
  };
  expect(placement_from_vcoord(m, "", "f"), "f:1: places no rank");
  expect(placement_from_vcoord(m, "(0,0)\n(0,4)\n", "f"),
         "f:2: coordinate 4 of dimension 1 is not in 0..3");
  expect(placement_from_vcoord(m, "(0,0,0)", "f"), "f:1: 3 coordinates; the machine has 2 dimensions");
  expect(placement_from_vcoord(m, "(0,-1)", "f"), "f:1: \"(0,-1)\" is no coordinate");
  expect(placement_from_vcoord(m, "(0,0", "f"), "is no coordinate");
  expect(placement_from_vcoord(m, "(0,0) gpu=1", "f"), "\"gpu=1\" after the coordinate");
  expect(placement_from_hostlist(m, "+n0\n\n+n16", "f"), "f:3: host 16 is not in 0..15");
  expect(placement_from_hostlist(m, "elsewhere", "f"), "f:1: there is no host \"elsewhere\"");
  expect(placement_from_hostlist(m, "+n[0-99999999]", "f"), "is no host or list");
  expect(placement_from_hostlist(m, "+n[3", "f"), "is no host or list");
  expect(placement_from_hostlist(m, "+n1*99999999999", "f"), "is no host or list");
  expect(placement_from_rankfile(m, "rank 0=+n0 slot=0\nrank 0=+n1 slot=0\n", "f"),
         "f:2: rank 0 is there twice");
  expect(placement_from_rankfile(m, "rank 1=+n0 slot=0", "f"), "rank 0 is missing");
  expect(placement_from_rankfile(m, "rank 0=+n0 slot=9", "f"), "host +n0 has no core 9");
  expect(placement_from_rankfile(m, "rank 0=+n0", "f"), "f:1: \"rank 0=+n0\" is not");
  expect(placement_from_rankfile(m, "rank x=+n0 slot=0", "f"), "is not \"rank N=HOST");
}

// ---- recognition
// -----------------------------------------------------------------------------------------

/// What a grid promises, checked against the machine: neighbours differ in one dimension only, and the ways
/// between consecutive ranks of a line have no link in common, the way from last to first included where it
/// wraps.
void check_grid(const Machine& m, const Placement& placement, const Topology& t) {
  const Torus& torus = *m.torus();
  const std::vector<TorusAxis> axes = torus.dimensions();
  std::int64_t volume = 1;
  for (const GridDimension& d : t.grid) volume *= d.size;
  ASSERT_EQ(volume, placement.size());
  const auto rank_at = [&](std::int64_t position) {
    return t.rank_at.empty() ? static_cast<std::int32_t>(position)
                             : t.rank_at[static_cast<std::size_t>(position)];
  };
  std::set<std::int32_t> all;
  for (std::int64_t p = 0; p < volume; ++p) all.insert(rank_at(p));
  ASSERT_EQ(static_cast<std::int64_t>(all.size()), volume);
  std::int64_t stride = 1;
  for (std::size_t d = t.grid.size(); d-- > 0; stride *= t.grid[d].size) {
    for (std::int64_t p = 0; p < volume; ++p) {
      if (p / stride % t.grid[d].size != 0) continue;
      std::set<std::int32_t> axis_used;
      std::int32_t length = 0, axis = -1;
      for (std::int32_t i = 0; i + (t.grid[d].wraps ? 0 : 1) < t.grid[d].size; ++i) {
        const std::int64_t from = p + i * stride, to = p + (i + 1) % t.grid[d].size * stride;
        const auto a =
            torus.logical_coordinates(placement.ranks[static_cast<std::size_t>(rank_at(from))].host);
        const auto b =
            torus.logical_coordinates(placement.ranks[static_cast<std::size_t>(rank_at(to))].host);
        for (std::size_t k = 0; k < a.size(); ++k)
          if (a[k] != b[k]) {
            axis_used.insert(static_cast<std::int32_t>(k));
            axis = static_cast<std::int32_t>(k);
            const std::int32_t straight = std::abs(a[k] - b[k]);
            length += axes[k].wraps ? std::min(straight, axes[k].size - straight) : straight;
          }
      }
      ASSERT_EQ(axis_used.size(), 1u);
      // Ways that do not overlap fit on the axis together.
      EXPECT_LE(length, axes[static_cast<std::size_t>(axis)].wraps
                            ? axes[static_cast<std::size_t>(axis)].size
                            : axes[static_cast<std::size_t>(axis)].size - 1);
    }
  }
}

std::vector<std::int32_t> sizes_of(const Topology& t) {
  std::vector<std::int32_t> sizes;
  for (const GridDimension& d : t.grid) sizes.push_back(d.size);
  return sizes;
}

TEST(Recognize, WholeTori) {
  for (const char* name : {"torus:4x3x5", "mesh:7", "torus:2x2x2", "fugaku:4x6x4", "torus:1x4x1x3m"}) {
    const Machine m = machine(name);
    const Placement all = place_all(m);
    const Recognized found = recognize(m, all);
    check_grid(m, all, found.topology);
    EXPECT_TRUE(found.topology.rank_at.empty()) << name << ": " << found.what;
    EXPECT_EQ(found.topology.ranks(), m.hosts);
  }
  const Machine m = machine("fugaku:48x6x48");
  const Recognized found = recognize(m, place_all(m));
  EXPECT_EQ(found.topology.grid, (std::vector<GridDimension>{{48, true}, {6, true}, {48, true}}));
  EXPECT_EQ(found.topology.ports, 6);
  EXPECT_EQ(found.what, "48x6x48 torus");
  // Fujitsu's order of ranks is another order of dimensions, and no permutation.
  const Recognized fujitsu = recognize(m, placed(m, m.hosts, RankOrder::first_dimension_fastest));
  EXPECT_EQ(fujitsu.what, "48x6x48 torus");
  EXPECT_TRUE(fujitsu.topology.rank_at.empty());
}

TEST(Recognize, SubGrids) {
  const Machine m = machine("torus:6x5x4m");
  const auto of = [&](const std::vector<std::vector<std::int32_t>>& sides) {
    Placement p;
    for (const std::int32_t x : sides[0])
      for (const std::int32_t y : sides[1])
        for (const std::int32_t z : sides[2])
          p.ranks.push_back(
              place_of_slot(m, static_cast<std::int32_t>(m.torus()->host_of_logical({x, y, z})), 0));
    return p;
  };
  struct Case {
    std::vector<std::vector<std::int32_t>> sides;
    std::vector<GridDimension> grid;
  };
  const std::vector<Case> cases = {
      {{{0, 1, 2, 3, 4, 5}, {2}, {3}}, {{6, true}}},
      {{{1, 2}, {0, 1, 2, 3, 4}, {0}}, {{2, false}, {5, true}}},
      {{{5, 0, 1}, {3}, {0, 1, 2, 3}}, {{3, false}, {4, false}}},  // over the end of the ring
      {{{0, 2, 4}, {1}, {1}}, {{3, true}}},                        // every other host, all the way round
      {{{0, 2}, {0, 2}, {0, 2}}, {{2, false}, {2, false}, {2, false}}},
      {{{0, 1, 3}, {4}, {0, 3}}, {{3, false}, {2, false}}},    // 3 -> 0 is a longer way than any other
      {{{0, 2, 3, 5}, {4}, {0, 3}}, {{4, true}, {2, false}}},  // 0 -> 2 and 3 -> 5 are as long
      {{{3, 2, 1}, {1}, {2}}, {{3, false}}},                   // downwards
      {{{4, 3, 2, 1, 0, 5}, {1}, {2}}, {{6, true}}},           // round the other way
      {{{2, 3, 4, 5, 0, 1}, {1}, {2}}, {{6, true}}},           // from elsewhere
  };
  for (const Case& c : cases) {
    const Placement p = of(c.sides);
    const Recognized found = recognize(m, p);
    EXPECT_EQ(found.topology.grid, c.grid) << found.what;
    EXPECT_TRUE(found.topology.rank_at.empty()) << found.what;
    check_grid(m, p, found.topology);
  }
}

TEST(Recognize, PermutedAndBroken) {
  std::mt19937 random(11);
  for (const char* name : {"torus:4x3x2", "fugaku:4x6x2", "mesh:5x3"}) {
    const Machine m = machine(name);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(m.hosts));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      const Placement p = restrict_to(place_all(m), order);
      const Recognized found = recognize(m, p);
      ASSERT_FALSE(found.topology.grid.empty()) << found.what;
      EXPECT_NE(found.what.find("permuted"), std::string::npos) << found.what;
      check_grid(m, p, found.topology);
      order.pop_back();
      const Recognized broken = recognize(m, restrict_to(place_all(m), order));
      EXPECT_TRUE(broken.topology.grid.empty());
      EXPECT_NE(broken.what.find("no box"), std::string::npos) << broken.what;
    }
  }
}

TEST(Recognize, PhysicalBoxes) {
  // Six ranks on one unit's a and b axes: no box of the job's X, Y, Z, but one of the machine's A and B.
  const Machine m = machine("fugaku:4x6x4");
  const Torus& torus = *m.torus();
  Placement p;
  for (std::int32_t host = 0; host < m.hosts; ++host) {
    const auto at = torus.coordinates(host);
    if (at[0] == 0 && at[1] == 0 && at[2] == 0 && at[5] == 0) p.ranks.push_back(place_of_slot(m, host, 0));
  }
  ASSERT_EQ(p.size(), 6);
  const Recognized found = recognize(m, p);
  EXPECT_EQ(sizes_of(found.topology), (std::vector<std::int32_t>{2, 3})) << found.what;
}

TEST(Recognize, Hosts) {
  const Machine m = machine("sakuraone");
  const Placement all = place_all(m);
  const Recognized whole = recognize(m, all);
  EXPECT_EQ(whole.what, "100 hosts of 8 ranks on 8 rails");
  EXPECT_EQ(whole.topology.rail_of_rank[13], 5);
  EXPECT_EQ(whole.topology.numa_of_rank[13], 1);
  EXPECT_EQ(whole.topology.host_of_rank[799], 99);
  std::vector<std::int32_t> rail, one, uneven;
  for (std::int32_t h = 0; h < 10; ++h) rail.push_back(8 * h + 3);
  for (std::int32_t r = 16; r < 24; ++r) one.push_back(r);
  for (std::int32_t r = 0; r < 12; ++r) uneven.push_back(r);
  EXPECT_EQ(recognize(m, restrict_to(all, rail)).what, "10 ranks of rail 3");
  EXPECT_EQ(recognize(m, restrict_to(all, one)).what, "8 ranks of one host in 2 NUMA domains");
  EXPECT_EQ(recognize(m, restrict_to(all, uneven)).what, "no structure: 2 hosts have 4 to 8 ranks");
  EXPECT_TRUE(recognize(m, restrict_to(all, one)).topology.one_host());
  Machine crowded = machine("torus:2x2");
  crowded.kinds[0].slots = 2;
  const Recognized shared = recognize(crowded, place_all(crowded));
  EXPECT_TRUE(shared.topology.grid.empty());
  EXPECT_EQ(shared.what, "4 hosts of 2 ranks; no grid: ranks share hosts");
  // The hand-made topologies that algorithms are tested with are what is recognized.
  EXPECT_EQ(recognize(machine("rails:3x4"), place_all(machine("rails:3x4"))).topology.host_of_rank,
            Topology::rails(3, 4).host_of_rank);
  EXPECT_EQ(recognize(machine("rails:3x4"), place_all(machine("rails:3x4"))).topology.rail_of_rank,
            Topology::rails(3, 4).rail_of_rank);
  EXPECT_EQ(recognize(machine("torus:3x4"), place_all(machine("torus:3x4"))).topology.grid,
            Topology::torus({{3}, {4}}, 4).grid);
}

// ---- groups
// ----------------------------------------------------------------------------------------------

TEST(Groups, EveryRankIsInOneOfEachKind) {
  for (const char* order : {"tp-dp-pp", "dp-pp-tp", "pp-tp-dp", "tp-pp-dp"}) {
    const ParallelGroups groups = parallel_groups({2, 3, 4}, order).value();
    for (const auto& [list, number, size] :
         {std::tuple{&groups.tp, 12u, 2u}, {&groups.pp, 8u, 3u}, {&groups.dp, 6u, 4u}}) {
      EXPECT_EQ(list->size(), number);
      std::set<std::int32_t> seen;
      for (const auto& group : *list) {
        EXPECT_EQ(group.size(), size);
        seen.insert(group.begin(), group.end());
      }
      EXPECT_EQ(seen.size(), 24u) << order;
    }
  }
  const ParallelGroups groups = parallel_groups({2, 3, 4}).value();
  EXPECT_EQ(groups.tp[0], (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(groups.dp[0], (std::vector<std::int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(groups.pp[0], (std::vector<std::int32_t>{0, 8, 16}));
  for (const char* order : {"", "tp", "tp-dp", "tp-tp-pp", "tp-dp-pp-", "tp-dp-xx", "tp,dp,pp"})
    EXPECT_FALSE(parallel_groups({2, 3, 4}, order)) << order;
  EXPECT_FALSE(parallel_groups({0, 3, 4}));
  EXPECT_FALSE(parallel_groups({1 << 20, 1 << 20, 1 << 20}));
}

TEST(Groups, BlocksPutGroupsOnSubTori) {
  const Machine m = machine("fugaku:8x6x4");
  const ParallelSizes sizes = {6, 8, 4};
  const std::vector<ParallelBlocks> all = parallel_blocks(m, sizes).value();
  ASSERT_FALSE(all.empty());
  bool found = false;
  for (const ParallelBlocks& blocks : all) {
    const Placement p = place_in_blocks(m, sizes, blocks).value();
    auto hosts = hosts_of(p);
    std::sort(hosts.begin(), hosts.end());
    for (std::int32_t h = 0; h < m.hosts; ++h)
      ASSERT_EQ(hosts[static_cast<std::size_t>(h)], h) << blocks_text(blocks);
    const ParallelGroups groups = parallel_groups(sizes).value();
    for (const auto* list : {&groups.tp, &groups.pp, &groups.dp})
      for (const auto& group : *list) {
        const Recognized r = recognize(m, restrict_to(p, group));
        ASSERT_FALSE(r.topology.grid.empty()) << blocks_text(blocks) << ": " << r.what;
      }
    if (blocks.tp == std::vector<std::int32_t>{1, 6, 1} &&
        blocks.pp == std::vector<std::int32_t>{8, 1, 1}) {
      found = true;
      EXPECT_EQ(describe_groups(m, p, groups).value(),
                "TP: 32 groups of 6: 6 torus\nPP: 24 groups of 8: 8 torus\nDP: 48 groups of 4: 4 torus\n");
    }
  }
  EXPECT_TRUE(found);
  EXPECT_FALSE(parallel_blocks(m, {6, 8, 5}));
  EXPECT_FALSE(parallel_blocks(machine("sakuraone"), {8, 1, 100}));
  EXPECT_TRUE(parallel_blocks(machine("torus:5x5"), {25, 1, 1}).value().size() == 1);
  EXPECT_FALSE(place_in_blocks(m, sizes, {{1, 6, 1}, {1, 1, 4}, {4, 1, 1}}));
  EXPECT_FALSE(place_in_blocks(m, sizes, {{6}, {4}, {8}}));
}

TEST(Groups, Rails) {
  const Machine m = machine("sakuraone");
  const ParallelGroups groups = parallel_groups({8, 1, 100}).value();
  const std::string text = describe_groups(m, place_all(m), groups).value();
  EXPECT_NE(text.find("TP: 100 groups of 8: 8 ranks of one host"), std::string::npos) << text;
  EXPECT_NE(text.find("1 of them: 100 ranks of rail 7"), std::string::npos) << text;
  EXPECT_FALSE(describe_groups(m, placed(m, 8), groups));
}

// ---- pictures
// --------------------------------------------------------------------------------------------

TEST(MachinePicture, IsWellFormedForEveryFabric) {
  const char* graph =
      R"({"format": "tamaki-machine-1", "name": "<&>", "hosts": 2, "fabric": {"kind": "graph", "switches": 2, "cables": [
    {"between": ["host:0", "switch:0"], "bandwidth": 1}, {"between": ["switch:0", "switch:1"], "bandwidth": 1}, {"between": ["host:1", "switch:1"], "bandwidth": 1}]}})";
  for (const char* name : {"fugaku", "fugaku:8x8x8", "sakuraone", "eos", "dgx_h100", "laptop", "torus:3",
                           "torus:2x3x4x5", "mesh:1", "hosts:1x1", "hosts:2000x1", "rails:2000x8", graph}) {
    const Machine m = machine(name);
    MachinePicture picture;
    picture.placement = placed(m, static_cast<std::int32_t>(std::min<std::int64_t>(m.slots(), 16)));
    picture.colour_of_rank = {0, 1, 2};
    const std::string svg = draw_machine(m, picture);
    const Result<XmlElement> root = parse_xml(svg, "svg");
    ASSERT_TRUE(root) << name << ": " << root.error().message;
    EXPECT_EQ(root->name, "svg");
    std::map<std::string, int> elements;
    for (const XmlElement& child : root->children) ++elements[child.name];
    if (m.torus() != nullptr && m.hosts <= kMostDrawnHosts) {
      EXPECT_GE(elements["rect"], m.hosts) << name;
    }
    EXPECT_LT(svg.size(), 8u << 20) << name;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << name;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tamaki
