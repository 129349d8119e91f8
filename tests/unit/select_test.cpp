// Selection: rules, costs on a machine, tuning tables.
#include "select/select.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "communicator/found_machine.hpp"
#include "schedule/msccl.hpp"
#include "select/tuning.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

constexpr std::uint64_t K = 1024, M = 1024 * K;

std::unique_ptr<Costs> costs_on(const std::string& machine, CostOptions options = {}) {
  Result<Machine> described = machine_from(machine);
  EXPECT_TRUE(described) << described.error().message;
  const Placement placement = place_all(*described);
  return std::make_unique<Costs>(*described, placement, recognize(*described, placement).topology, options);
}

Question question(Costs* costs, std::uint64_t bytes, Collective collective = Collective::allreduce) {
  return {.collective = collective,
          .bytes = bytes,
          .ranks = costs->topology().ranks(),
          .topology = &costs->topology(),
          .costs = costs};
}

std::string chosen(const Question& q) {
  const Result<Choice> choice = select(q);
  return choice ? std::string(choice->algorithm->name) : choice.error().message;
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tamaki_tuning_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(Rules, haveWishes) {
  const auto rules = parse_rules(Collective::allreduce, "torus/lanes=6/pieces=16:1M-,knomial/radix=4");
  ASSERT_TRUE(rules) << rules.error().message;
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].algorithm, "torus");
  EXPECT_EQ((*rules)[0].lanes, 6);
  EXPECT_EQ((*rules)[0].pieces, 16);
  EXPECT_EQ((*rules)[0].radix, 0);
  EXPECT_EQ((*rules)[0].from, 1 * M);
  EXPECT_EQ((*rules)[1].radix, 4);
  for (const char* wrong : {"ring/", "ring/lanes", "ring/lanes=0", "ring/lanes=65", "ring/pieces=x",
                            "ring/radix=1", "ring/ports=2", "ring//"}) {
    const auto refused = parse_rules(Collective::allreduce, wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_NE(refused.error().message.find("is no wish; there are lanes=1..64"), std::string::npos)
        << refused.error().message;
  }
}

TEST(Rules, comeBeforeCosts) {
  const auto costs = costs_on("torus:4x4");
  auto rules = parse_rules(Collective::allreduce, "ring/lanes=2:0-1M");
  Question q = question(costs.get(), 64 * K);
  q.rules = &*rules;
  const auto choice = select(q);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm->name, "ring");
  EXPECT_EQ(choice->problem.lanes, 2);
  EXPECT_EQ(deciding_rule(q), &(*rules)[0]);
  q.bytes = 1 * M;  // exclusive
  EXPECT_EQ(deciding_rule(q), nullptr);
  EXPECT_NE(chosen(q), "ring");
}

TEST(Rules, nameFilesOfSchedules) {
  const Folder folder;
  const std::string path = folder / "a:b.xml";
  std::vector<Program> programs;
  for (int rank = 0; rank < 4; ++rank)
    programs.push_back(
        find_algorithm(Collective::allreduce, "ring")->build(Topology::flat(4), {.ranks = 4}, rank));
  const auto xml = schedule_to_msccl(programs);
  ASSERT_TRUE(xml);
  std::ofstream(path) << *xml;
  auto rules = parse_rules(Collective::allreduce, "ring:0-1K,file:" + path + ":1K-1M,file:" + path);
  ASSERT_TRUE(rules) << rules.error().message;
  ASSERT_EQ(rules->size(), 3u);
  EXPECT_EQ((*rules)[1].file, path);
  EXPECT_EQ((*rules)[1].from, 1 * K);
  EXPECT_EQ((*rules)[1].to, 1 * M);
  EXPECT_EQ((*rules)[2].file, path);
  const Status loaded = load_files(Collective::allreduce, &*rules);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*rules)[1].loaded, (*rules)[2].loaded);
  EXPECT_EQ((*rules)[1].loaded->ranks(), 4);
  Question q{.bytes = 64 * K, .ranks = 4, .rules = &*rules};
  ASSERT_TRUE(select(q)) << select(q).error().message;
  EXPECT_EQ(select(q)->name(), "file:" + path);
  q.commutative = false;
  EXPECT_NE(select(q).error().message.find("order of a non-commutative"), std::string::npos);
  q.commutative = true;
  q.ranks = 5;  // it is not for them
  EXPECT_EQ(select(q)->loaded, nullptr);
  for (const auto& [text, names] : std::vector<std::pair<std::string, std::string>>{
           {"file:/does/not/exist.xml", "/does/not/exist.xml"},
           {"file:" + path, "it is for allreduce, not for allgather"}}) {
    auto wrong = parse_rules(Collective::allgather, text);
    ASSERT_TRUE(wrong);
    const Status refused = load_files(Collective::allgather, &*wrong);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(names), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(parse_rules(Collective::allreduce, "file:"));
  // One that is wrong does not run.
  std::string broken = *xml;
  const auto at = broken.find("type=\"re\"");
  ASSERT_NE(at, std::string::npos);
  broken.replace(at, 9, "type=\"cpy\"");
  const std::string other = folder / "broken.xml";
  std::ofstream(other) << broken;
  auto wrong = parse_rules(Collective::allreduce, "file:" + other);
  ASSERT_TRUE(wrong);
  const Status refused = load_files(Collective::allreduce, &*wrong);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(other), std::string::npos) << refused.error().message;
}

TEST(Curves, areLinearBetweenPointsAndBeyond) {
  Curve curve{.points = {{100, 1}, {200, 2}, {400, 3}}};
  EXPECT_DOUBLE_EQ(curve.at(0), 1);
  EXPECT_DOUBLE_EQ(curve.at(100), 1);
  EXPECT_DOUBLE_EQ(curve.at(150), 1.5);
  EXPECT_DOUBLE_EQ(curve.at(300), 2.5);
  EXPECT_DOUBLE_EQ(curve.at(800), 5);
  EXPECT_TRUE(curve.covers(100) && curve.covers(400));
  EXPECT_FALSE(curve.covers(99) || curve.covers(401));
  Curve falling{.points = {{1, 5}, {2, 1}}};
  EXPECT_DOUBLE_EQ(falling.at(10), 1);  // never below the last
  EXPECT_EQ(Curve().at(5), 0);
}

TEST(Curves, sizesBesideOne) {
  using Sizes = std::vector<double>;
  EXPECT_EQ(sizes_beside(Collective::allreduce, 8), Sizes({64}));
  EXPECT_EQ(sizes_beside(Collective::allreduce, 64), Sizes({64}));
  EXPECT_EQ(sizes_beside(Collective::allreduce, 100), Sizes({64, 256}));
  EXPECT_EQ(sizes_beside(Collective::allreduce, double{64 * M}), Sizes({double{64 * M}}));
  EXPECT_EQ(sizes_beside(Collective::allreduce, 1e12), Sizes({double{16 * M}, double{64 * M}}));
  EXPECT_EQ(sizes_beside(Collective::barrier, 0), Sizes({0}));
}

TEST(Costs, chooseTheLeastOfWhatIsSimulated) {
  const auto costs = costs_on("torus:4x4");
  for (const std::uint64_t bytes : {64 * K, 1 * M, 64 * M}) {
    const std::vector<Estimate> all = costs->estimates(Collective::allreduce, static_cast<double>(bytes));
    ASSERT_GT(all.size(), 10u);
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].seconds, all[i].seconds);
    const auto choice = select(question(costs.get(), bytes));
    ASSERT_TRUE(choice);
    double least = INFINITY, own = INFINITY;
    for (const Estimate& e : all) {
      least = std::min(least, e.seconds);
      if (e.candidate.algorithm == choice->algorithm &&
          e.candidate.problem.lanes == choice->problem.lanes &&
          e.candidate.problem.pieces == choice->problem.pieces &&
          e.candidate.problem.radix == choice->problem.radix)
        own = e.seconds;
    }
    EXPECT_LE(own, 1.05 * least) << bytes;
  }
  EXPECT_EQ(chosen(question(costs.get(), 64 * M)), "torus");
}

TEST(Costs, dependOnTheMachine) {
  // The same ranks on hosts: few messages across pay.
  EXPECT_EQ(chosen(question(costs_on("hosts:4x8").get(), 64 * M)), "hierarchical");
  EXPECT_EQ(chosen(question(costs_on("rails:4x8").get(), 64 * M)), "rail");
}

TEST(Costs, areTheSameForEveryRank) {
  // Two ranks that compute them apart must come to the same bits.
  const auto a = costs_on("rails:4x4"), b = costs_on("rails:4x4");
  EXPECT_EQ(a->key(), b->key());
  for (const Collective collective : {Collective::allreduce, Collective::allgather, Collective::alltoall})
    for (const double bytes : {8.0, 1000.0, 1e6, 3e8}) {
      const auto x = a->estimates(collective, bytes), y = b->estimates(collective, bytes);
      ASSERT_EQ(x.size(), y.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(x[i].seconds, y[i].seconds);
        EXPECT_EQ(x[i].candidate.algorithm, y[i].candidate.algorithm);
      }
    }
}

TEST(Costs, keyIsOfMachinePlacesAndSlots) {
  std::set<std::uint64_t> keys;
  keys.insert(costs_on("rails:4x4")->key());
  keys.insert(costs_on("rails:4x8")->key());
  keys.insert(costs_on("hosts:4x4")->key());
  keys.insert(costs_on("rails:4x4", {.slot_bytes = 4096})->key());
  Result<Machine> machine = machine_from("rails:4x4");
  const Placement part = restrict_to(place_all(*machine), {0, 1, 2});
  keys.insert(Costs(*machine, part, recognize(*machine, part).topology).key());
  EXPECT_EQ(keys.size(), 5u);
}

TEST(Costs, canBeNeededByCallsThatAllowLittle) {
  const auto costs = costs_on("rails:4x8");
  Question q = question(costs.get(), 64 * M);
  q.commutative = false;
  const auto ordered = select(q);
  ASSERT_TRUE(ordered);
  EXPECT_TRUE(ordered->algorithm->keeps_order);
  q.commutative = true;
  q.reproducible = true;
  const auto canonical = select(q);
  ASSERT_TRUE(canonical);
  EXPECT_TRUE(canonical->algorithm->canonical);
}

TEST(Costs, saySoWhenTheyAreNotKnown) {
  const auto costs = costs_on("torus:8x8", {.most_ranks = 32});
  EXPECT_TRUE(costs->estimates(Collective::allreduce, 1e6).empty());
  const std::vector<Consideration> all = considerations(question(costs.get(), 1 * M));
  ASSERT_FALSE(all.empty());
  for (const Consideration& c : all) EXPECT_FALSE(c.why_not.empty());
  EXPECT_EQ(chosen(question(costs.get(), 1 * M)), "torus");  // by the order of preference
}

TEST(Costs, aShortlistServesManyRanks) {
  const auto costs = costs_on("rails:20x8");  // 160 ranks
  const auto all = costs->estimates(Collective::allreduce, 64.0 * M, {"hierarchical", "rail", "ring"});
  ASSERT_FALSE(all.empty());
  for (const Estimate& e : all)
    EXPECT_TRUE(e.candidate.algorithm->name == "hierarchical" || e.candidate.algorithm->name == "rail" ||
                e.candidate.algorithm->name == "ring");
}

/// Measured times replace simulated ones, and the others are corrected by their ratio.
TEST(Tuning, correctsTheModel) {
  const auto plain = costs_on("hosts:2x4"), tuned = costs_on("hosts:2x4");
  const double n = 1 * M;
  const std::vector<Estimate> before = plain->estimates(Collective::allreduce, n);
  ASSERT_GT(before.size(), 3u);
  // The last by the model is measured to be twice as slow as it says, which is still slower than all: only
  // the scale moves.
  const Estimate& last = before.back();
  Curve seen{.candidate = last.candidate,
             .points = {{n / 2, last.seconds}, {n, 2 * last.seconds}, {2 * n, 4 * last.seconds}}};
  tuned->set_measured(Collective::allreduce, {seen});
  const std::vector<Estimate> after = tuned->estimates(Collective::allreduce, n);
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after.back().origin, Estimate::Origin::measured);
  for (std::size_t i = 0; i + 1 < after.size(); ++i) {
    EXPECT_EQ(after[i].origin, Estimate::Origin::corrected);
    EXPECT_NEAR(after[i].seconds, 2 * before[i].seconds, 1e-9 * before[i].seconds);
  }
  // Outside of what was measured nothing changes.
  EXPECT_EQ(tuned->estimates(Collective::allreduce, 16 * n)[0].origin, Estimate::Origin::simulated);
  // Measured to be the fastest where another is as simulated, it is chosen.
  seen.points = {{n / 2, before[0].seconds / 9}, {2 * n, before[0].seconds / 8}};
  const Curve as_simulated{.candidate = before[1].candidate,
                           .points = {{n, before[1].seconds}, {2 * n, 2 * before[1].seconds}}};
  tuned->set_measured(Collective::allreduce, {seen, as_simulated});
  EXPECT_EQ(chosen(question(tuned.get(), static_cast<std::uint64_t>(n))), last.candidate.algorithm->name);
}

TuningRow row(std::uint64_t key, const std::string& algorithm, std::vector<Curve::Point> points) {
  return {.key = key,
          .machine = "m \"x\"",
          .ranks = 8,
          .version = library_version(),
          .algorithm = algorithm,
          .points = std::move(points)};
}

TEST(Tuning, roundTrips) {
  TuningTable table;
  table.rows.push_back(row(0xfedcba9876543210U, "ring", {{8, 1.25e-6}, {1e9, 0.125}}));
  table.rows.push_back(row(1, "some_day", {{0, 1}}));
  table.rows[1].origin = Estimate::Origin::simulated;
  table.rows[1].lanes = 3;
  const auto read = parse_tuning(tuning_json(table), "t.json");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->rows.size(), 2u);
  EXPECT_EQ(read->rows[0].key, 0xfedcba9876543210U);
  EXPECT_EQ(read->rows[0].machine, "m \"x\"");
  EXPECT_EQ(read->rows[0].points, table.rows[0].points);
  EXPECT_EQ(read->rows[1].lanes, 3);
  EXPECT_EQ(read->rows[1].origin, Estimate::Origin::simulated);
  EXPECT_EQ(tuning_json(*read), tuning_json(table));
}

TEST(Tuning, hostileTablesAreRefusedByFileLineAndField) {
  const std::string good = tuning_json({.rows = {row(7, "ring", {{8, 1e-6}})}});
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto read = parse_tuning(text, "t.json");
    return read ? std::string("accepted") : read.error().message;
  };
  EXPECT_NE(broken("tamaki-tuning-1", "tamaki-tuning-9").find("t.json:"), std::string::npos);
  for (const auto& [from, to, names] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"0000000000000007", "xyz", "xyz"},
           {"\"measured\"", "\"guessed\"", "guessed"},
           {"\"allreduce\"", "\"allreduced\"", "allreduced"},
           {"\"lanes\": 1", "\"lanes\": -1", "lanes"},
           {"\"lanes\": 1", "\"lanes\": \"one\"", "lanes"},
           {"[8]", "[8, 9]", "2 bytes and 1 seconds"},
           {"[8]", "[-8]", "-8"},
           {"[1e-06]", "[0]", "times be positive"},
           {"[1e-06]", "[\"fast\"]", "seconds"},
           {"\"ranks\": 8", "\"rank\": 8", "rank"},
           {"\"rows\": [", "\"rows\": 3, \"x\": [", "rows"},
       }) {
    const std::string error = broken(from, to);
    EXPECT_NE(error.find("t.json:"), std::string::npos) << from << " -> " << to << ": " << error;
    EXPECT_NE(error.find(names), std::string::npos) << from << " -> " << to << ": " << error;
  }
  EXPECT_NE(parse_tuning(good.substr(0, good.size() / 2), "t.json").error().message.find("t.json:"),
            std::string::npos);
}

TEST(Tuning, mergesAndKeepsWhatOthersWrote) {
  const Folder folder;
  const std::string path = folder / "deep/er/tuning.json";
  ASSERT_TRUE(read_tuning(path));
  EXPECT_TRUE(read_tuning(path)->rows.empty());
  ASSERT_TRUE(merge_tuning(path, {.rows = {row(1, "ring", {{8, 1}, {16, 2}})}}));
  ASSERT_TRUE(merge_tuning(path, {.rows = {row(1, "ring", {{16, 5}, {32, 3}}), row(2, "ring", {{8, 9}})}}));
  const auto read = read_tuning(path);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->rows.size(), 2u);
  EXPECT_EQ(read->rows[0].points, (std::vector<Curve::Point>{{8, 1}, {16, 5}, {32, 3}}));
  // A file that is no table is not overwritten.
  const std::string other = folder / "other.json";
  std::ofstream(other) << "precious";
  const Status refused = merge_tuning(other, {.rows = {row(1, "ring", {{8, 1}})}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(other), std::string::npos);
  std::string kept;
  std::ifstream(other) >> kept;
  EXPECT_EQ(kept, "precious");
  EXPECT_FALSE(merge_tuning("/proc/none/tuning.json", {}));
}

TEST(Tuning, jobsThatWriteAtTheSameTimeLoseNothing) {
  const Folder folder;
  const std::string path = folder / "tuning.json";
  constexpr int kWriters = 6, kRows = 8;
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool good = true;
      for (int r = 0; r < kRows; ++r)
        good = good && merge_tuning(
                           path, {.rows = {row(static_cast<std::uint64_t>(w * 100 + r), "ring", {{8, 1}})}})
                           .has_value();
      ::_exit(good ? 0 : 1);
    }
    writers.push_back(pid);
  }
  for (const pid_t pid : writers) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  const auto read = read_tuning(path);
  ASSERT_TRUE(read) << read.error().message;
  std::set<std::uint64_t> keys;
  for (const TuningRow& r : read->rows) keys.insert(r.key);
  EXPECT_EQ(keys.size(), static_cast<std::size_t>(kWriters * kRows));
  EXPECT_EQ(read->rows.size(), keys.size());
}

TEST(Tuning, isForOneMachineAndVersion) {
  const auto here = costs_on("hosts:2x2");
  TuningTable table;
  const Curve curve{.candidate = here->estimates(Collective::allreduce, 1e6)[0].candidate,
                    .points = {{1e6, 42.0}}};
  TuningRow mine = tuning_row(*here, curve, Estimate::Origin::measured);
  const auto origin = [&](const TuningRow& r) {
    const auto costs = costs_on("hosts:2x2");
    apply_tuning({.rows = {r}}, costs.get());
    for (const Estimate& e : costs->estimates(Collective::allreduce, 1e6))
      if (e.seconds == 42.0) return std::string(name_of(e.origin));
    return std::string("not seen");
  };
  EXPECT_EQ(origin(mine), "measured");
  TuningRow other = mine;
  other.version = "0.0.1";
  EXPECT_EQ(origin(other), "not seen");
  other = mine;
  other.key ^= 1;
  EXPECT_EQ(origin(other), "not seen");
  other = mine;
  other.algorithm = "torus";  // refuses these ranks
  EXPECT_EQ(origin(other), "not seen");
}

TEST(Tuning, path) {
  EXPECT_EQ(tuning_path("off"), "");
  EXPECT_EQ(tuning_path("/a/b"), "/a/b");
  const std::string automatic = tuning_path("auto");
  EXPECT_TRUE(automatic.empty() || automatic.ends_with("/tamaki/tuning.json"));
}

RankIdentity identity(std::uint64_t host, int core, int cores, int nics = 1, double rate = 0) {
  RankIdentity made;
  made.host = host;
  made.cores = cores;
  for (int c = core; c < core + cores; ++c) made.core_mask[c / 64] |= std::uint64_t{1} << c % 64;
  made.nics = nics;
  made.nic_rate = rate;
  return made;
}

TEST(FoundMachine, hasTheHostsOfTheRanks) {
  const std::vector<RankIdentity> ranks = {identity(5, 0, 1, 2, 1e9), identity(9, 0, 1, 1, 2e9),
                                           identity(5, 1, 1, 2, 1e9), identity(9, 1, 1, 1, 2e9)};
  const FoundMachine found = found_machine(ranks);
  ASSERT_TRUE(check(found.machine)) << check(found.machine).error().message;
  EXPECT_EQ(found.machine.hosts, 2);
  ASSERT_EQ(found.placement.size(), 4);
  EXPECT_EQ(found.placement.ranks[0].host, 0);
  EXPECT_EQ(found.placement.ranks[1].host, 1);
  EXPECT_EQ(found.placement.ranks[2].host, 0);
  EXPECT_EQ(found.placement.ranks[2].slot, 1);
  EXPECT_EQ(found.machine.host(0).nics.size(), 2u);
  EXPECT_EQ(found.machine.host(1).nics.size(), 1u);
  EXPECT_EQ(std::get<Crossbar>(found.machine.fabric).link_bandwidth, 1e9);
  const Recognized recognized = recognize(found.machine, found.placement);
  EXPECT_EQ(recognized.topology.host_of_rank, (std::vector<std::int32_t>{0, 1, 0, 1}));
}

TEST(FoundMachine, sharedCoresMakeMessagesSlow) {
  const FoundMachine alone = found_machine(std::vector{identity(1, 0, 1), identity(1, 1, 1)});
  const FoundMachine crowded = found_machine(std::vector(8, identity(1, 0, 2)));
  EXPECT_GT(crowded.machine.model.inside_startup_s, 10 * alone.machine.model.inside_startup_s);
  EXPECT_LT(crowded.machine.model.inside_copy_bandwidth, alone.machine.model.inside_copy_bandwidth / 3);
}

TEST(FoundMachine, smallMessagesGoInOneShotAndLargeOnesInTwo) {
  for (const int ranks : {2, 4, 8}) {
    FoundMachine found = found_machine(std::vector(static_cast<std::size_t>(ranks), identity(1, 0, 2)));
    const Topology topology = recognize(found.machine, found.placement).topology;
    Costs costs(std::move(found.machine), std::move(found.placement), topology);
    EXPECT_EQ(chosen(question(&costs, 8)), "direct_one_shot") << ranks;
    EXPECT_EQ(chosen(question(&costs, 64 * K)), "direct_two_shot") << ranks;
    EXPECT_EQ(chosen(question(&costs, 64 * M)), "direct_two_shot") << ranks;
  }
}

}  // namespace
}  // namespace tamaki
