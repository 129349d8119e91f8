// Machines as values, their descriptions and their names.
#include "topology/machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "topology/parse/catalogue.hpp"
#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

Machine good(std::string_view text) {
  Result<Machine> machine = machine_from(text);
  EXPECT_TRUE(machine) << text << ": " << machine.error().message;
  return machine ? *machine : Machine{};
}

std::string error_of(std::string_view text) {
  const Result<Machine> machine = machine_from(text);
  return machine ? "no error" : machine.error().message;
}

#define EXPECT_ERROR(text, part)                          \
  EXPECT_NE(error_of(text).find(part), std::string::npos) \
      << "\"" << error_of(text) << "\" lacks \"" << (part) << "\""

std::string body(std::string_view rest) {
  return "{\"format\": \"tamaki-machine-1\",\n\"name\": \"x\",\n" + std::string(rest) + "}";
}

TEST(Machine, NamesBuildMachines) {
  const Machine torus = good("torus:4x4x2m");
  EXPECT_EQ(torus.hosts, 32);
  EXPECT_EQ(torus.torus()->axes, (std::vector<TorusAxis>{{"", 4, true}, {"", 4, true}, {"", 2, false}}));
  EXPECT_EQ(good("mesh:4x4t").torus()->axes, (std::vector<TorusAxis>{{"", 4, false}, {"", 4, true}}));
  const Machine rails = good("rails:100x8");
  EXPECT_EQ(rails.slots(), 800);
  EXPECT_EQ(rails.leaf_spine()->leaves(rails.hosts), 8);
  EXPECT_DOUBLE_EQ(rails.leaf_spine()->oversubscription(), 1);
  EXPECT_EQ(good("hosts:4x2").slots(), 8);
  EXPECT_EQ(good("sakuraone:32").hosts, 32);
  EXPECT_EQ(good("sakuraone").leaf_spine()->leaves(100), 16);
}

TEST(Machine, WrongNamesAreRefused) {
  for (const char* text : {"",
                           "torus:",
                           "torus:0x4",
                           "torus:4x",
                           "torus:4xx4",
                           "torus:-4",
                           "torus:4.5",
                           "torus:4x4q",
                           "torus:1x1x1x1x1x1x1x1x1",
                           "hosts:4",
                           "hosts:4x2x2",
                           "hosts:0x2",
                           "rails:4x",
                           "rails:99999999999x8",
                           "torus:2147483647x2147483647x2147483647",
                           "torus:1000000",
                           "hosts:1000000x1",
                           "nothing",
                           "nothing:4",
                           "fugaku:",
                           "fugaku:49x1x1",
                           "fugaku:1x70x1",
                           "fugaku:1x1x1x1",
                           "fugaku:4mx4x4",
                           "sakuraone:4x4",
                           "../etc/passwd.json",
                           "no/such/file.json",
                           "{",
                           "<",
                           "{}",
                           "[]"})
    EXPECT_FALSE(machine_from(text)) << text;
  EXPECT_ERROR("nothing", "sakuraone");  // says what there is
  EXPECT_ERROR("fugaku:49x1x1", "X = 49 is not in 1..48");
}

TEST(Machine, TofuEmbeddingIsARingOfNeighbours) {
  const std::int32_t fugaku[] = {24, 23, 24};
  for (std::int32_t size = 1; size <= 69; ++size)
    for (std::size_t d = 0; d < 3; ++d) {
      if (d != 1 && size > 48) continue;
      std::int32_t shape[] = {1, 1, 1};
      shape[d] = size;
      const Result<Torus> torus = tofu_torus(shape, fugaku);
      ASSERT_TRUE(torus) << torus.error().message;
      ASSERT_EQ(torus->hosts(), size);
      std::set<std::int64_t> points;
      for (std::int32_t i = 0; i < size; ++i) {
        points.insert(torus->point_of(torus->coordinates(i)));
        const bool last = i + 1 == size;
        if (last && !torus->logical[d].wraps) continue;
        EXPECT_EQ(torus->hops(torus->coordinates(i), torus->coordinates(last ? 0 : i + 1)), 1)
            << "dimension " << d << " size " << size << " from " << i;
      }
      EXPECT_EQ(points.size(), static_cast<std::size_t>(size));
      EXPECT_EQ(torus->logical[d].wraps, size > 2 && (d == 1 || size % 2 == 0))
          << "dimension " << d << " size " << size;
    }
}

TEST(Machine, TofuEmbeddingIsThatOfRealJobs) {
  // Coordinates (y, b) of logical Y = 0..7 less the job's first y, in dumps of three jobs of 8x8x8 and
  // 16x8x16 nodes: github.com/zhuangbility111/Fugaku_mpi_process_mapping_tool, data/coords_out.1.0 and
  // ..._16x8x16_*. X and Z there go out on a (c) = 0 and back on 1, as (x, a) of X = 0..7.
  const Machine machine = good("fugaku:8x8x8");
  const Torus& torus = *machine.torus();
  const std::vector<std::vector<std::int32_t>> y = {{0, 0}, {1, 0}, {1, 2}, {2, 2},
                                                    {2, 0}, {2, 1}, {1, 1}, {0, 1}};
  const std::vector<std::vector<std::int32_t>> x = {{0, 0}, {1, 0}, {2, 0}, {3, 0},
                                                    {3, 1}, {2, 1}, {1, 1}, {0, 1}};
  EXPECT_EQ(torus.logical[0].points, x);
  EXPECT_EQ(torus.logical[1].points, y);
  EXPECT_EQ(torus.logical[2].points, x);
  EXPECT_EQ(torus.logical[1].axes, (std::vector<std::int32_t>{1, 4}));
  // Of 16, the dump of 8x16x16 has these points in another order.
  const std::vector<std::vector<std::int32_t>> y16 = {{0, 0}, {1, 0}, {2, 0}, {2, 2}, {3, 2}, {4, 2},
                                                      {4, 1}, {5, 1}, {5, 2}, {5, 0}, {4, 0}, {3, 0},
                                                      {3, 1}, {2, 1}, {1, 1}, {0, 1}};
  const auto own = good("fugaku:1x16x1").torus()->logical[1].points;
  EXPECT_EQ(std::set(own.begin(), own.end()), std::set(y16.begin(), y16.end()));
}

TEST(Machine, FugakuIsTheWholeMachine) {
  const Machine all = good("fugaku"), job = good("fugaku:48x6x48");
  EXPECT_EQ(all.hosts, 158'976);
  EXPECT_EQ(job.hosts, 13'824);
  std::vector<std::int32_t> sizes;
  for (const TorusAxis& axis : job.torus()->axes) sizes.push_back(axis.size);
  EXPECT_EQ(sizes, (std::vector<std::int32_t>{24, 2, 24, 2, 3,
                                              2}));  // as the placement file of the Fugaku-LLM run says
  EXPECT_DOUBLE_EQ(job.torus()->link_bandwidth, 6.8e9);
  EXPECT_DOUBLE_EQ(job.torus()->injection_rate(), 40.8e9);
  EXPECT_EQ(job.torus()->engines, 6);
}

TEST(Machine, CoordinatesGoBothWays) {
  for (const char* name : {"torus:3x4x5", "fugaku:5x7x3", "fugaku:6x12x4"}) {
    const Machine machine = good(name);
    const Torus& torus = *machine.torus();
    const std::vector<std::int32_t> at_points = torus.hosts_at_points();
    for (std::int32_t host = 0; host < machine.hosts; ++host) {
      EXPECT_EQ(torus.host_of_logical(torus.logical_coordinates(host)), host);
      const std::int64_t point = torus.point_of(torus.coordinates(host));
      EXPECT_EQ(torus.point_coordinates(point), torus.coordinates(host));
      EXPECT_EQ(at_points[static_cast<std::size_t>(point)], host);
    }
  }
}

TEST(Machine, EveryDescriptionGoesRound) {
  std::vector<std::string> names = description_names();
  EXPECT_GE(names.size(), 5u);
  for (const char* more :
       {"torus:4x4x2m", "mesh:3", "rails:3x8", "hosts:4x2", "fugaku:48x6x48", "fugaku:5x7x9", "eos:32"})
    names.emplace_back(more);
  for (const std::string& name : names) {
    const Machine machine = good(name);
    const std::string text = machine_to_json(machine);
    const Result<Machine> again = machine_from(text);
    ASSERT_TRUE(again) << name << ": " << again.error().message;
    EXPECT_EQ(*again, machine) << name;
    EXPECT_EQ(hash_of(*again), hash_of(machine)) << name;
    EXPECT_EQ(machine_to_json(*again), text) << name << ": notes are lost";
    EXPECT_EQ(again->notes.list.size(), machine.notes.list.size()) << name;
    EXPECT_FALSE(describe(machine).empty());
  }
}

TEST(Machine, EveryFigureOfADescriptionHasASource) {
  for (const std::string& name : description_names()) {
    const Machine machine = good(name);
    std::set<std::string> noted;
    for (const Note& note : machine.notes.list) noted.insert(note.field);
    const auto covered = [&](std::string field) {
      while (!noted.contains(field)) {
        const std::size_t dot = field.find_last_of(".[");
        if (dot == std::string::npos) return false;
        field.resize(dot);
      }
      return true;
    };
    std::vector<std::string> fields = {"host.slots", "model.startup_s", "model.reduce_bandwidth",
                                       "model.inside_bandwidth"};
    if (machine.torus() != nullptr)
      fields.insert(fields.end(), {"fabric.link_bandwidth", "fabric.engines", "fabric.injection_bandwidth",
                                   "fabric.hop_latency_s", "fabric.axes"});
    if (machine.leaf_spine() != nullptr)
      fields.insert(fields.end(), {"hosts", "fabric.hosts_per_pod", "fabric.spines", "fabric.nic_bandwidth",
                                   "fabric.uplink_bandwidth", "fabric.nic_latency_s"});
    for (const std::string& field : fields) EXPECT_TRUE(covered(field)) << name << " " << field;
  }
}

TEST(Machine, NotesDoNotMakeMachinesDiffer) {
  Machine a = good("sakuraone"), b = a;
  b.notes.list.clear();
  EXPECT_EQ(a, b);
  EXPECT_EQ(std::hash<Machine>()(a), std::hash<Machine>()(b));
  std::get<LeafSpine>(b.fabric).spines += 1;
  EXPECT_NE(a, b);
  EXPECT_NE(hash_of(a), hash_of(b));
}

TEST(Machine, AllFabricsAndUnitsAreRead) {
  const Machine graph = good(body(
      R"("hosts": 2, "kinds": [{"name": "a", "nics": [{"repeat": 2}]}, {"name": "b", "slots": 3}], "kind_of_host": [0, 1], "host_names": ["n\"1", "n2"],
    "fabric": {"kind": "graph", "switches": 2, "cables": [
      {"between": ["host:0", "switch:0"], "bandwidth": "10 Gb/s", "latency_s": "2 us"},
      {"between": ["host:0:1", "switch:1"], "bandwidth": "1 GiB/s"}, {"between": ["host:1", "switch:0"], "bandwidth": 5},
      {"between": ["switch:0", "switch:1"], "bandwidth": "100 MB/s"}]},
    "model": {"startup_s": "250 ns", "eager_bytes": "64 KiB"})"));
  const Graph& g = std::get<Graph>(graph.fabric);
  EXPECT_EQ(g.cables[0], (Graph::Cable{{false, 0, 0}, {true, 0, 0}, 1.25e9, 2e-6}));
  EXPECT_EQ(g.cables[1].a, (Graph::End{false, 0, 1}));
  EXPECT_DOUBLE_EQ(g.cables[1].bandwidth, 1073741824.0);
  EXPECT_EQ(graph.model.startup_s, 250e-9);
  EXPECT_EQ(graph.model.eager_bytes, 65536);
  EXPECT_EQ(graph.slots(), 4);
  EXPECT_EQ(good(machine_to_json(graph)), graph);
}

TEST(Machine, HostileDescriptionsNameFileLineAndField) {
  EXPECT_ERROR(body(R"("fabric": {"kind": "torus", "axes": [{"size": 4}],
"link_bandwidth": -6.8e9})"),
               "text:4: fabric.link_bandwidth: ");
  EXPECT_ERROR(body(R"("fabric": {"kind": "switch",
"link_bandwidth": "6.8 GB"})"),
               "text:4: fabric.link_bandwidth: \"6.8 GB\" is not a rate");
  EXPECT_ERROR(body(R"("fabric": {"kind": "switch",
"link_bandwidth": 0})"),
               "text:4: fabric.link_bandwidth: 0 is no rate");
  EXPECT_ERROR(body(R"("fabric": {"kind": "switch", "link_bandwidth": 1e400})"), "text:3: ");
  EXPECT_ERROR(body(R"("fabric": {"kind": "switch", "link_bandwidth": null})"),
               "text:3: fabric.link_bandwidth: null");
  EXPECT_ERROR(body(R"("fabric": {"kind": "ring"})"),
               "fabric: \"ring\" is no kind; there are switch, torus");
  EXPECT_ERROR(body(R"("fabric": {})"), "text:3: fabric: field \"kind\" is missing");
  EXPECT_ERROR(body(R"("fabric": {"kind": "graph", "switches": 1, "cables": [
{"between": ["host:0", "switch:0"]}]})"),
               "text:4: fabric.cables[0].bandwidth: 0 is no rate");
  EXPECT_ERROR(body(R"("fabric": {"kind": "graph", "switches": 1, "cables": [
{"between": ["host:0", "switch:7"], "bandwidth": 1}]})"),
               "text:4: fabric.cables[0].between: there is no switch 7");
  EXPECT_ERROR(body(R"("hosts": "many")"), "text:3: hosts: a text; it must be a whole number");
  EXPECT_ERROR(body(R"("hosts": 2.5)"), "text:3: hosts: 2.5; it must be a whole number");
  EXPECT_ERROR(body(R"("hosts": 1000000)"), "text:3: hosts: 1000000 is not in 1..200000");
  EXPECT_ERROR(body(R"("hosts": 99999999999999)"), "hosts: 99999999999999 is out of range");
  EXPECT_ERROR(body(R"("host": {"slots": 0})"), "text:3: host.slots: 0 is not in");
  EXPECT_ERROR(body(R"("host": {"gpus": [{"repeat": 1000000}]})"), "repeat 1000000");
  EXPECT_ERROR(body(R"("host": {"gpus": 3})"), "host.gpus: a number; it must be a list");
  EXPECT_ERROR(body(R"("host": {"gpus": [{"numa": 9}]})"), "host.gpus[0].numa: 9 is not in -1..0");
  EXPECT_ERROR(body(R"("host": {"gpus": [{"speed": 9}]})"), "host.gpus[0].speed: unknown field; there are");
  EXPECT_ERROR(
      body(R"("host": {"gpus": [{}], "links": [{"between": ["gpu:0", "gpu:0"], "bandwidth": 1}]})"),
      "both ends are the same part");
  EXPECT_ERROR(body(R"("hosts": 3, "kind_of_host": [0])"), "kind_of_host: 1 entries for 3 hosts");
  EXPECT_ERROR(body(R"("model": {"link_efficiency": 1.5})"),
               "text:3: model.link_efficiency: 1.5 is no share");
  EXPECT_ERROR(body(R"("model": {"startup_s": "-1 us"})"), "model.startup_s");
  EXPECT_ERROR(body(R"("hosts": 1,
"hosts": 2)"),
               "text:4: field \"hosts\" is there twice; first in line 3");
  EXPECT_ERROR(body(R"("hosts": [1,)").substr(0, 59), "text:3: ");  // cut short
  EXPECT_ERROR("{\"format\": \"other\", \"name\": \"x\"}",
               "text:1: format: \"other\" is not \"tamaki-machine-1\"");
  EXPECT_ERROR("{\"name\": \"x\"}", "field \"format\" is missing");
  EXPECT_ERROR(body("\"hosts\": " + std::string(100, '[') + std::string(100, ']')), "more than 32 levels");
}

TEST(Machine, HostileTori) {
  EXPECT_ERROR(body(R"("fabric": {"kind": "torus"})"), "a torus needs \"axes\"");
  EXPECT_ERROR(
      body(
          R"("fabric": {"kind": "torus", "axes": [{"size": 2147483647}, {"size": 2147483647}, {"size": 2147483647}]})"),
      "axes[0].size");
  EXPECT_ERROR(body(R"("fabric": {"kind": "torus", "axes": [{"size": 1000}, {"size": 1000}]})"),
               "fabric.axes: 1000000 is not in");
  EXPECT_ERROR(body(R"("hosts": 7, "fabric": {"kind": "torus", "axes": [{"size": 8}]})"),
               "hosts: 7 hosts on a torus of 8");
  EXPECT_ERROR(body(R"("fabric": {"kind": "torus", "axes": [{"name": "X", "size": 4}],
"logical": [{"axes": ["X"], "points": [[0], [1],
[1]]}]})"),
               "text:4: fabric.logical[0].points: one point is there twice");
  EXPECT_ERROR(
      body(
          R"("fabric": {"kind": "torus", "axes": [{"name": "X", "size": 4}], "logical": [{"axes": ["X"], "points": [[4]]}]})"),
      "4 is not in 0..3");
  EXPECT_ERROR(
      body(
          R"("fabric": {"kind": "torus", "axes": [{"name": "X", "size": 4}], "logical": [{"axes": ["X", "X"], "points": [[0, 0]]}]})"),
      "used twice");
  EXPECT_ERROR(
      body(
          R"("fabric": {"kind": "torus", "axes": [{"name": "X", "size": 4}], "logical": [{"axes": ["Q"], "points": [[0]]}]})"),
      "there is no axis \"Q\"");
  EXPECT_ERROR(
      body(
          R"("fabric": {"kind": "leaf_spine", "nics_per_host": 4096, "hosts_per_pod": 1, "spines": 200000, "oversubscription": 1}, "hosts": 200000)"),
      "more than");
  EXPECT_ERROR(
      body(R"("fabric": {"kind": "leaf_spine", "nics_per_host": 1, "hosts_per_pod": 1, "spines": 1})"),
      "one of \"uplink_bandwidth\" and \"oversubscription\"");
}

TEST(Machine, TruncatedDescriptionsAreErrorsEverywhere) {
  const std::string text = machine_to_json(good("fugaku:2x3x2"));
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_FALSE(machine_from_json(std::string_view(text).substr(0, size), "t")) << size;
}

TEST(Machine, MutatedDescriptionsAreReadOrRefused) {
  std::mt19937 random(3);
  int read = 0, refused = 0;
  for (const std::string& name : description_names()) {
    const std::string text = machine_to_json(good(name == "fugaku" ? "fugaku:4x6x4" : name));
    for (int round = 0; round < 150; ++round) {
      std::string mutated = text;
      const std::size_t at = random() % mutated.size();
      switch (random() % 3) {
        case 0:
          mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated.erase(at, 1 + random() % 20);
          break;
        default:
          mutated.insert(at, 1, static_cast<char>('0' + random() % 10));
      }
      const Result<Machine> machine = machine_from_json(mutated, "m");
      (machine ? read : refused) += 1;
      if (machine) {
        EXPECT_TRUE(check(*machine));
      } else {
        EXPECT_EQ(machine.error().message.substr(0, 2), "m:");
      }
    }
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 100);
}

TEST(Machine, ChecksValuesThatNoTextBuilt) {
  Machine machine = good("torus:4x4");
  std::get<Torus>(machine.fabric).link_bandwidth = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(check(machine));
  machine = good("hosts:2x2");
  machine.kinds.clear();
  EXPECT_FALSE(check(machine));
  machine = good("rails:2x2");
  machine.hosts = -1;
  EXPECT_FALSE(check(machine));
}

}  // namespace
}  // namespace tamaki
