#include "simulate/simulate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

constexpr double kRate = 6.8e9;

/// A machine with nothing but bandwidth.
Machine bare(Machine machine) {
  machine.model = {};
  machine.model.startup_s = 0;
  machine.model.inside_startup_s = 0;
  return machine;
}
Machine bare_torus(const std::vector<std::int32_t>& sizes, std::int32_t engines) {
  std::vector<TorusAxis> axes;
  for (const std::int32_t size : sizes) axes.push_back({.size = size, .wraps = true});
  Machine machine = bare(torus_machine(axes));
  auto& torus = std::get<Torus>(machine.fabric);
  torus.link_bandwidth = kRate;
  torus.engines = engines;
  torus.engine_bandwidth = 0;
  torus.injection_bandwidth = 0;
  torus.hop_latency_s = 0;
  return machine;
}
/// With every constant of the model at work.
Machine full(Machine machine) {
  machine.model.startup_s = 0.7e-6;
  machine.model.send_overhead_s = 0.11e-6;
  machine.model.receive_overhead_s = 0.13e-6;
  machine.model.step_s = 0.05e-6;
  machine.model.eager_bytes = 9000;
  machine.model.eager_bytes_per_hop = 100;
  machine.model.eager_bandwidth = 5e9;
  machine.model.rendezvous_s = 1.7e-6;
  machine.model.link_efficiency = 0.93;
  machine.model.reduce_bandwidth = 20e9;
  machine.model.copy_bandwidth = 41e9;
  return machine;
}

struct Case {
  SimulationOptions options;
  int lanes = 1;
  int pieces = 1;
  AlikeRanks ranks = AlikeRanks::merge;
  NetworkOptions network = {};
};

Result<Simulation> run(const Machine& machine, Collective collective, const char* name, const Case& how) {
  const Placement placement = place_all(machine);
  const Recognized recognized = recognize(machine, placement);
  const Algorithm* algorithm = find_algorithm(collective, name);
  if (algorithm == nullptr) return fail(Code::invalid_argument, std::string("no algorithm ") + name);
  const Problem problem{
      .collective = collective, .ranks = placement.size(), .lanes = how.lanes, .pieces = how.pieces};
  if (const std::string why = algorithm->refuses(recognized.topology, problem); !why.empty())
    return fail(Code::invalid_usage, why);
  const auto network = Network::of(machine, placement, how.network);
  if (!network) return tl::unexpected<Error>(network.error());
  return simulate(
      **network, [&](std::int32_t rank) { return algorithm->build(recognized.topology, problem, rank); },
      how.options, how.ranks);
}
double seconds(const Machine& machine, Collective collective, const char* name, const Case& how) {
  const Result<Simulation> made = run(machine, collective, name, how);
  EXPECT_TRUE(made) << name << ": " << made.error().message;
  return made ? made->seconds : 0;
}
void expect_close(double is, double wanted, const std::string& what) {
  EXPECT_NEAR(is, wanted, 1e-6 * wanted) << what;
}

// 2 (p-1) (alpha + chunk beta) + (p-1) chunk gamma.
TEST(Simulate, ringTakesItsClosedForm) {
  for (const int p : {2, 3, 8, 61}) {
    Machine machine = bare_torus({p}, 1);
    const double n = 1e6, chunk = n / p;
    expect_close(seconds(machine, Collective::allreduce, "ring", {{.bytes = n}}),
                 2 * (p - 1) * chunk / kRate, "beta");
    machine.model.startup_s = 1e-6;
    std::get<Torus>(machine.fabric).hop_latency_s = 1e-7;
    machine.model.reduce_bandwidth = 20e9;
    expect_close(seconds(machine, Collective::allreduce, "ring", {{.bytes = n}}),
                 2 * (p - 1) * (1.1e-6 + chunk / kRate) + (p - 1) * chunk / 20e9, "alpha, beta, gamma");
  }
}

// LogGOPSim's result for p ranks, L = 490, o = 100, G = 1, s = 10000 (Hoefler, Schneider, Lumsdaine, LSAP
// 2010): its s - 1 bytes of G, and o at both ends.
TEST(Simulate, ringInLogGPTakesWhatLogGOPSimSays) {
  for (const auto& [p, wanted_ns] :
       {std::pair(8, 149646.0), std::pair(64, 1346814.0), std::pair(512, 10924158.0)}) {
    Machine machine = bare_torus({p}, 1);
    std::get<Torus>(machine.fabric).link_bandwidth = 1e9;
    machine.model.startup_s = 490e-9 + 100e-9;  // the sender's o delays the message as latency does
    machine.model.receive_overhead_s = 100e-9;
    expect_close(seconds(machine, Collective::allreduce, "ring", {{.bytes = 9999.0 * p}}), wanted_ns * 1e-9,
                 std::to_string(p));
  }
}

TEST(Simulate, bucketTakesItsClosedForm) {
  for (const std::vector<std::int32_t>& sizes :
       {std::vector<std::int32_t>{8, 8, 8}, {4, 4}, {6, 6, 6}, {3, 3, 3, 3}}) {
    const int ports = 2 * static_cast<int>(sizes.size());
    Machine machine = bare_torus(sizes, ports);
    double p = 1, steps = 0;
    for (const std::int32_t size : sizes) p *= size, steps += 2 * (size - 1);
    const double n = 67108864;
    const double beta = 2 * n * (p - 1) / (p * ports * kRate);
    expect_close(seconds(machine, Collective::allreduce, "torus", {{.bytes = n}, ports}), beta,
                 "zero latency");
    machine.model.startup_s = 0.2e-6;
    expect_close(seconds(machine, Collective::allreduce, "torus", {{.bytes = n}, ports}),
                 beta + steps * 0.2e-6, "0.2 us");
  }
}

// (p/(p-1)) (1 - 2^-D) sum_s delta(s) 2^(-s D), delta 1, 1, 3, 5, 11, ...: De Sensi et al., Swing, NSDI
// 2024.
TEST(Simulate, swingTakesItsClosedForm) {
  for (const std::vector<std::int32_t>& sizes :
       {std::vector<std::int32_t>{16}, {64}, {8, 8}, {16, 16}, {32, 32}, {8, 8, 8}, {4, 4, 4, 4}}) {
    const int d = static_cast<int>(sizes.size());
    double p = 1, sum = 0;
    for (const std::int32_t size : sizes) p *= size;
    for (int s = 0; 1 << s < sizes[0]; ++s)
      sum += std::abs((1 - std::pow(-2.0, s + 1)) / 3) * std::pow(2.0, -s * d);
    const double ratio = p / (p - 1) * (1 - std::pow(2.0, -d)) * sum, n = 1 << 24;
    expect_close(seconds(bare_torus(sizes, 2 * d), Collective::allreduce, "swing", {{.bytes = n}, 2 * d}),
                 ratio * n * (p - 1) / (p * d * kRate), std::to_string(sizes.size()) + "-d");
  }
}

// The three shortcuts change nothing.
TEST(Simulate, shortcutsChangeNothing) {
  Machine slow_link = full(bare_torus({5, 4}, 4));
  std::vector<std::pair<Machine, const char*>> machines;
  machines.emplace_back(full(bare_torus({4, 2, 3}, 6)), "");
  machines.emplace_back(full(bare_torus({16}, 2)), "");
  machines.emplace_back(full(rail_machine(4, 4)), "");
  machines.emplace_back(full(switch_machine(5, 3)), "");
  machines.emplace_back(slow_link, "axis 1 + (2,1)");
  int compared = 0, merged = 0, skipped = 0;
  for (const auto& [machine, slow] : machines)
    for (const Algorithm* algorithm : all_algorithms()) {
      for (const auto& [lanes, slices] : {std::pair(1, 1), std::pair(4, 3)}) {
        Case how{{.bytes = 3e6, .slices = slices, .room = 3}, lanes, 9};
        if (*slow != 0) how.network.faults = {{.kind = Fault::Kind::link, .link = slow, .factor = 0.3}};
        const std::string name(algorithm->name);
        const Result<Simulation> fast = run(machine, algorithm->collective, name.c_str(), how);
        if (!fast && fast.error().code == Code::invalid_usage) continue;
        how.options.loops = SimulationOptions::Loops::simulate;
        how.ranks = AlikeRanks::apart;
        const Result<Simulation> plain = run(machine, algorithm->collective, name.c_str(), how);
        ASSERT_TRUE(fast && plain) << name << ": " << (fast ? plain : fast).error().message;
        const std::string what =
            machine.name + " " + std::string(name_of(algorithm->collective)) + " " + name;
        EXPECT_NEAR(fast->seconds, plain->seconds, 1e-9 * plain->seconds) << what;
        EXPECT_EQ(fast->messages, plain->messages) << what;
        EXPECT_EQ(plain->simulated_messages, plain->messages) << what;
        EXPECT_NEAR(fast->bytes_sent, plain->bytes_sent, 1e-9 * plain->bytes_sent) << what;
        for (std::size_t r = 0; r < plain->rank_seconds.size(); ++r)
          EXPECT_NEAR(fast->rank_seconds[r], plain->rank_seconds[r], 1e-9 * plain->seconds)
              << what << ", rank " << r;
        for (std::size_t l = 0; l < plain->link_bytes.size(); ++l)
          ASSERT_NEAR(fast->link_bytes[l], plain->link_bytes[l], 1e-6 + 1e-9 * plain->link_bytes[l])
              << what << ", link " << l;
        ++compared;
        merged += fast->simulated_ranks < plain->simulated_ranks;
        skipped += fast->simulated_ranks == plain->simulated_ranks &&
                   fast->simulated_messages < plain->simulated_messages;
      }
    }
  EXPECT_GT(compared, 100);
  EXPECT_GT(merged, 20);
  EXPECT_GT(skipped, 5);
}

TEST(Simulate, bigSchedulesAreCheap) {
  const Result<Simulation> ring =
      run(bare_torus({13824}, 1), Collective::allreduce, "ring", {{.bytes = 1e9}});
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->messages, 13824LL * 27646);
  EXPECT_LT(ring->simulated_messages, 10000);
  expect_close(ring->seconds, 2 * 13823 * 1e9 / 13824 / kRate, "ring");
}

/// Two ranks; the first sends `messages` messages of one chunk each.
ProgramSource stream(int messages) {
  return [messages](std::int32_t rank) {
    Builder b({.algorithm = "stream",
               .collective = Collective::broadcast,
               .ranks = 2,
               .rank = rank,
               .chunks = messages});
    auto lane = b.lane();
    for (int m = 0; m < messages; ++m)
      if (rank == 0)
        lane.send(in(m), to(1));
      else
        lane.recv(from(0), out(m));
    return b.take();
  };
}

TEST(Simulate, messagesCostWhatTheModelSays) {
  Machine machine = bare_torus({2}, 1);
  machine.model.startup_s = 2e-6;
  machine.model.send_overhead_s = 3e-6;
  machine.model.receive_overhead_s = 5e-6;
  machine.model.step_s = 0.5e-6;
  std::get<Torus>(machine.fabric).hop_latency_s = 7e-6;
  const auto time = [&](double bytes, int messages) {
    const auto network = Network::of(machine, place_all(machine));
    return simulate(**network, stream(messages), {.bytes = bytes * messages})->seconds;
  };
  const double alone = 0.5e-6 + 2e-6 + 7e-6 + 0.5e-6 + 5e-6;
  expect_close(time(6800, 1), alone + 1e-6, "one");
  // Short ones are held back by the receiver, which is taken 5.5 us for each; long ones by the wire.
  expect_close(time(6800, 10), alone + 1e-6 + 9 * 5.5e-6, "short");
  expect_close(time(68000, 10), alone + 10 * 10e-6, "long");
  machine.model.receive_overhead_s = 0;
  expect_close(time(6800, 10), alone - 5e-6 + 1e-6 + 9 * 3e-6, "held back by the sender");
  machine.model.send_overhead_s = 0;
  machine.model.eager_bytes = 5000;
  machine.model.eager_bytes_per_hop = 1000;
  machine.model.rendezvous_s = 11e-6;
  machine.model.eager_bandwidth = 1e9;
  expect_close(time(6000, 1), alone - 5e-6 + 6000 / kRate + 6e-6, "eager, with a copy");
  expect_close(time(6001, 1), alone - 5e-6 + 6001 / kRate + 11e-6, "asks first");
}

TEST(Simulate, lanesOfARankShareItsProcessor) {
  // Four lanes that only copy: together as long as one after the other.
  Machine machine = bare_torus({2}, 4);
  machine.model.copy_bandwidth = 1e9;
  const auto network = Network::of(machine, place_all(machine));
  const auto copies = [](std::int32_t rank) {
    Builder b(
        {.algorithm = "copy", .collective = Collective::allreduce, .ranks = 2, .rank = rank, .chunks = 4});
    for (int l = 0; l < 4; ++l) b.lane().copy(in(l), out(l), {.finish = true});
    return b.take();
  };
  expect_close(simulate(**network, copies, {.bytes = 4e6})->seconds, 4e-3, "copies");
  NetworkOptions half{.faults = {{.kind = Fault::Kind::host, .host = 1, .factor = 0.5}}};
  const auto slow = Network::of(machine, place_all(machine), half);
  const Result<Simulation> made = simulate(**slow, copies, {.bytes = 4e6});
  expect_close(made->rank_seconds[0], 4e-3, "the other host");
  expect_close(made->rank_seconds[1], 8e-3, "the slow host");
}

TEST(Simulate, slicesOverlapReductionAndTransfer) {
  Machine machine = bare_torus({8}, 1);
  machine.model.reduce_bandwidth = kRate;
  const double whole = seconds(machine, Collective::allreduce, "chain", {{.bytes = 1e7}});
  const double sliced = seconds(machine, Collective::allreduce, "chain", {{.bytes = 1e7, .slices = 200}});
  EXPECT_LT(sliced, 0.25 * whole);
}

TEST(Simulate, faultsSlowAndRedirect) {
  const Machine machine = bare_torus({8}, 1);
  const double n = 8e6, healthy = seconds(machine, Collective::allreduce, "ring", {{.bytes = n}});
  Case slow{{.bytes = n}};
  slow.network.faults = {{.kind = Fault::Kind::link, .link = "axis 0 + (3)", .factor = 0.25}};
  expect_close(seconds(machine, Collective::allreduce, "ring", slow), 4 * healthy,
               "a ring is as slow as its slowest link");
  // The broken link is gone round: those 7 hops share links with nobody's way but one each; the ring is as
  // fast.
  slow.network.faults[0].factor = 0;
  const Result<Simulation> round = run(machine, Collective::allreduce, "ring", slow);
  ASSERT_TRUE(round) << round.error().message;
  EXPECT_NEAR(round->seconds, healthy, 0.01 * healthy);
  slow.network.faults.push_back({.kind = Fault::Kind::link, .link = "axis 0 - (3)", .factor = 0});
  const Result<Simulation> cut = run(machine, Collective::allreduce, "ring", slow);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find("no way from rank 3 (host 3) to rank 4 (host 4)"), std::string::npos)
      << cut.error().message;
  slow.network.faults = {{.kind = Fault::Kind::link, .link = "axis 9", .factor = 0.5}};
  const Result<Simulation> unknown = run(machine, Collective::allreduce, "ring", slow);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("is named \"axis 9\""), std::string::npos)
      << unknown.error().message;
}

TEST(Simulate, saysWhoIsStuck) {
  const Machine machine = bare_torus({2}, 1);
  const auto network = Network::of(machine, place_all(machine));
  const auto both_wait = [](std::int32_t rank) {
    Builder b(
        {.algorithm = "stuck", .collective = Collective::allreduce, .ranks = 2, .rank = rank, .chunks = 1});
    auto lane = b.lane();
    lane.recv(from(1 - rank), out(0));
    lane.send(in(0), to(1 - rank));
    return b.take();
  };
  const Result<Simulation> made = simulate(**network, both_wait, {.bytes = 8}, AlikeRanks::apart);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find(
                "deadlock: 2 of 2 lanes are stuck; rank 0 lane 0 step 0 waits for a message from rank 1"),
            std::string::npos)
      << made.error().message;
  const auto one_sends = [](std::int32_t rank) {
    Builder b(
        {.algorithm = "lost", .collective = Collective::allreduce, .ranks = 2, .rank = rank, .chunks = 1});
    if (rank == 0) b.lane().send(in(0), to(1));
    return b.take();
  };
  const Result<Simulation> lost = simulate(**network, one_sends, {.bytes = 8});
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("rank 0 sends to rank 1, which takes none"), std::string::npos)
      << lost.error().message;
  EXPECT_FALSE(simulate(**network, stream(4), {.bytes = -1}));
  EXPECT_FALSE(simulate(**network, stream(4), {.bytes = 1, .slices = 0}));
  EXPECT_FALSE(simulate(**network, stream(4), {.bytes = 1, .most_messages = 2}));
}

TEST(Simulate, timelineAddsUp) {
  Machine machine = full(bare_torus({4, 3}, 4));
  std::vector<SimulatedSpan> spans;
  Case how{{.bytes = 1e6, .spans = &spans}, 4, 1, AlikeRanks::apart};
  const Result<Simulation> made = run(machine, Collective::allreduce, "torus", how);
  ASSERT_TRUE(made) << made.error().message;
  double bytes = 0, last = 0;
  std::int64_t messages = 0;
  for (const SimulatedSpan& span : spans) {
    EXPECT_LE(span.begin_s, span.end_s);
    last = std::max(last, span.end_s);
    if (span.kind != SimulatedSpan::Kind::message) continue;
    ++messages, bytes += span.bytes;
    EXPECT_GT(span.arrival_s, span.end_s);
  }
  EXPECT_EQ(messages, made->messages);
  EXPECT_NEAR(bytes, made->bytes_sent, 1e-6 * bytes);
  EXPECT_LE(last, made->seconds * (1 + 1e-12));
}

TEST(Network, routesAreShortestAndNamed) {
  const Machine machine = bare_torus({5, 4, 3}, 6);
  const Placement placement = place_all(machine);
  const auto network = Network::of(machine, placement);
  const Torus& torus = *machine.torus();
  Route route;
  std::set<std::string> names;
  for (std::int32_t a = 0; a < placement.size(); ++a)
    for (std::int32_t b = 0; b < placement.size(); ++b) {
      if (a == b) continue;
      ASSERT_TRUE((*network)->route({a, b, a % 2, b % 3}, &route));
      EXPECT_EQ(route.hops, torus.hops(torus.coordinates(a), torus.coordinates(b)));
      EXPECT_EQ(static_cast<std::int32_t>(route.links.size()), route.hops + 2);
      EXPECT_EQ(std::set<std::int32_t>(route.links.begin(), route.links.end()).size(), route.links.size());
    }
  for (std::int32_t link = 0; link < (*network)->links(); ++link) names.insert((*network)->link_name(link));
  EXPECT_EQ(static_cast<std::int32_t>(names.size()), (*network)->links());
}

TEST(Network, tofuNeighboursAreOneHopApart) {
  const auto machine = machine_from("fugaku:8x6x8");
  ASSERT_TRUE(machine) << machine.error().message;
  const Placement placement = place_all(*machine);
  for (const std::uint64_t seed : {0, 7}) {
    const auto network = Network::of(*machine, placement, {.seed = seed});
    ASSERT_TRUE(network);
    const Torus& torus = *machine->torus();
    Route route;
    for (std::int32_t host = 0; host < machine->hosts; ++host)
      for (std::size_t d = 0; d < 3; ++d) {
        auto at = torus.logical_coordinates(host);
        at[d] = (at[d] + 1) % torus.dimensions()[d].size;
        ASSERT_TRUE(
            (*network)->route({host, static_cast<std::int32_t>(torus.host_of_logical(at))}, &route));
        EXPECT_EQ(route.hops, 1);
      }
    for (std::int32_t a = 0; a < machine->hosts; a += 7)
      for (std::int32_t b = 0; b < machine->hosts; b += 5) {
        if (a == b) continue;
        ASSERT_TRUE((*network)->route({a, b}, &route));
        EXPECT_EQ(route.hops, torus.hops(torus.coordinates(a), torus.coordinates(b)));
      }
  }
}

TEST(Network, leafAndSpineBySeed) {
  Machine machine = bare(rail_machine(8, 4));
  auto& fabric = std::get<LeafSpine>(machine.fabric);
  fabric.hosts_per_pod = 4;
  fabric.spines = 8;
  const Placement placement = place_all(machine);
  Route route;
  std::set<std::int32_t> spines;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto network = Network::of(machine, placement, {.seed = seed});
    ASSERT_TRUE((*network)->route({0, 4}, &route));  // same rail, same pod: over the leaf alone
    EXPECT_EQ(route.hops, 2);
    ASSERT_TRUE((*network)->route({0, 16}, &route));  // same rail, other pod
    EXPECT_EQ(route.hops, 4);
    for (const std::int32_t link : route.links)
      if ((*network)->kind(link) == Network::LinkKind::fabric) spines.insert(link);
    ASSERT_TRUE((*network)->route({0, 1}, &route));  // the same host
    EXPECT_TRUE(route.inside);
  }
  EXPECT_EQ(spines.size(), 16u);  // 8 up, 8 down
}

}  // namespace
}  // namespace tamaki
