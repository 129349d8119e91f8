// The same programs on the same machines in SimGrid (Casanova et al., JPDC 74, 2014), whose flow model is
// another implementation of max-min fairness. SimGrid has one engine a process, so each case is timed in a
// child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <deque>
#include <map>
#include <simgrid/s4u.hpp>
#include <stdexcept>

#include "algorithms/algorithm.hpp"
#include "simulate/simulate.hpp"
#include "topology/recognize.hpp"

namespace tamaki {
namespace {

namespace sg = simgrid::s4u;

struct Case {
  Machine machine;
  Collective collective = Collective::allreduce;
  const char* algorithm = "";
  int lanes = 1;
  double bytes = 1 << 24;
  NetworkOptions network = {};
  enum class Routes { ours, of_simgrid } routes = Routes::ours;  // of_simgrid: a torus zone
};

struct Setup {
  Placement placement;
  std::vector<Program> programs;
  std::unique_ptr<Network> network;
  double chunk_bytes = 0;
};

/// Empty where the algorithm refuses.
Setup set_up(const Case& c) {
  Setup made;
  made.placement = place_all(c.machine);
  const Recognized recognized = recognize(c.machine, made.placement);
  const Algorithm* algorithm = find_algorithm(c.collective, c.algorithm);
  EXPECT_NE(algorithm, nullptr) << c.algorithm;
  if (algorithm == nullptr) return made;
  const Problem problem{.collective = c.collective, .ranks = made.placement.size(), .lanes = c.lanes};
  const std::string why = algorithm->refuses(recognized.topology, problem);
  EXPECT_EQ(why, "") << c.algorithm;
  if (!why.empty()) return made;
  for (std::int32_t r = 0; r < problem.ranks; ++r)
    made.programs.push_back(algorithm->build(recognized.topology, problem, r));
  made.network = std::move(*Network::of(c.machine, made.placement, c.network));
  const bool blocks = c.collective != Collective::allreduce && c.collective != Collective::broadcast &&
                      c.collective != Collective::reduce;
  made.chunk_bytes =
      c.bytes / ((blocks ? problem.ranks : 1) * static_cast<double>(made.programs[0].chunks));
  return made;
}

/// What lanes of one rank wait with.
struct RankState {
  sg::MutexPtr mutex = sg::Mutex::create();
  sg::ConditionVariablePtr turned = sg::ConditionVariable::create();
  std::vector<std::int64_t> completed;
};
struct Outbox {
  sg::SemaphorePtr filled = sg::Semaphore::create(0);
  std::deque<std::pair<std::string, double>> messages;  // mailbox, bytes; a mailbox of "" ends it
};

std::string mailbox_name(int source, int destination, int channel) {
  return std::to_string(source) + ">" + std::to_string(destination) + "/" + std::to_string(channel);
}

void run_lane(const Setup& setup, int rank, int number, RankState* state, Outbox* outbox) {
  const Program& program = setup.programs[static_cast<std::size_t>(rank)];
  for (LaneCursor cursor(program, number); !cursor.done(); cursor.advance()) {
    const ExpandedStep& step = cursor.current();
    {
      std::unique_lock lock(*state->mutex);
      for (int i = 0; i < step.step->dependencies; ++i) {
        const Dependency& d =
            program.dependencies[static_cast<std::size_t>(step.step->first_dependency + i)];
        while (state->completed[static_cast<std::size_t>(d.lane)] <= d.step) state->turned->wait(lock);
      }
    }
    for (int k = 0; k < step.step->sources; ++k)
      if (step.sources[k].kind == Operand::Kind::peer)
        sg::Mailbox::by_name(mailbox_name(step.sources[k].peer, rank, step.sources[k].channel))->get<int>();
    for (int k = 0; k < step.step->destinations; ++k)
      if (step.destinations[k].kind == Operand::Kind::peer) {
        outbox->messages.emplace_back(
            mailbox_name(rank, step.destinations[k].peer, step.destinations[k].channel),
            step.step->width * setup.chunk_bytes);
        outbox->filled->release();
      }
    const std::unique_lock lock(*state->mutex);
    ++state->completed[static_cast<std::size_t>(number)];
    state->turned->notify_all();
  }
  outbox->messages.emplace_back("", 0);
  outbox->filled->release();
}

/// One message of a lane at a time, in order.
void run_sender(Outbox* outbox) {
  static int token = 0;
  for (;;) {
    outbox->filled->acquire();
    const auto [mailbox, bytes] = outbox->messages.front();
    outbox->messages.pop_front();
    if (mailbox.empty()) return;
    sg::Mailbox::by_name(mailbox)->put(&token, static_cast<std::uint64_t>(bytes));
  }
}

/// Calls f(lane, operand, whether it is a source) for every operand of a program that is a message.
template <class F>
void each_peer(const Program& program, const F& f) {
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane)
    for (const Block& block : program.lanes[lane].blocks)
      for (std::int32_t s = block.begin; s < block.end; ++s) {
        const Step& step = program.steps[static_cast<std::size_t>(s)];
        for (int k = 0; k < step.sources + step.destinations; ++k) {
          const Operand& o = program.operands[static_cast<std::size_t>(step.first_operand + k)];
          if (o.kind == Operand::Kind::peer) f(static_cast<std::int32_t>(lane), o, k < step.sources);
        }
      }
}

std::vector<sg::Host*> build_platform(const Case& c, const Setup& setup) {
  std::vector<sg::Host*> hosts;
  const auto name = [](std::size_t rank) { return "h" + std::to_string(rank); };
  if (c.routes == Case::Routes::of_simgrid) {
    const Torus& torus = *c.machine.torus();
    std::vector<unsigned long> sizes;
    for (const TorusAxis& axis : torus.axes) sizes.push_back(static_cast<unsigned long>(axis.size));
    hosts.resize(setup.programs.size());
    // SimGrid goes along its first dimension first, as we do, and counts that one as the fastest.
    const auto host = [&](sg::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
      std::vector<std::int32_t> at;
      unsigned long left = id;
      for (const TorusAxis& axis : torus.axes) {
        at.push_back(static_cast<std::int32_t>(left % static_cast<unsigned long>(axis.size)));
        left /= static_cast<unsigned long>(axis.size);
      }
      const auto rank = static_cast<std::size_t>(torus.point_of(at));
      hosts[rank] = zone->create_host(name(rank), 1e9);
      return std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>(
          hosts[rank]->get_netpoint(), nullptr);
    };
    sg::create_torus_zone("torus", nullptr, sizes, {host, {}, {}}, torus.link_bandwidth, 0,
                          sg::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
    return hosts;
  }
  sg::NetZone* zone = sg::create_full_zone("all");
  for (std::size_t r = 0; r < setup.programs.size(); ++r) hosts.push_back(zone->create_host(name(r), 1e9));
  std::map<std::string, std::int32_t> taker;  // mailbox -> lane that takes
  for (const Program& program : setup.programs)
    each_peer(program, [&](std::int32_t lane, const Operand& o, bool takes) {
      if (takes) taker[mailbox_name(o.peer, program.rank, o.channel)] = lane;
    });
  std::map<std::int32_t, sg::Link*> links;
  std::map<std::pair<int, int>, std::vector<std::int32_t>> routed;
  Route route;
  for (const Program& program : setup.programs)
    each_peer(program, [&](std::int32_t lane, const Operand& o, bool takes) {
      if (takes) return;
      const std::int32_t other = taker[mailbox_name(program.rank, o.peer, o.channel)];
      if (!setup.network->route({program.rank, o.peer, lane, other}, &route))
        throw std::runtime_error("no route");
      const auto [known, fresh] = routed.try_emplace({program.rank, o.peer}, route.links);
      if (known->second != route.links)
        throw std::runtime_error("SimGrid has one route a pair, these lanes have several");
      if (!fresh) return;
      std::vector<sg::LinkInRoute> path;
      for (const std::int32_t link : route.links) {
        sg::Link*& made = links[link];
        if (made == nullptr)
          made = zone->create_link("l" + std::to_string(link), setup.network->capacity(link))->seal();
        path.emplace_back(made);
      }
      zone->add_route(hosts[static_cast<std::size_t>(program.rank)]->get_netpoint(),
                      hosts[static_cast<std::size_t>(o.peer)]->get_netpoint(), nullptr, nullptr, path,
                      false);
    });
  zone->seal();
  return hosts;
}

double time_in_this_process(const Case& c, const Setup& setup) {
  std::vector<std::string> words = {"simgrid_test",
                                    "--log=root.thresh:critical",
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/crosstraffic:0",
                                    "--cfg=network/bandwidth-factor:1",
                                    "--cfg=network/latency-factor:1",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=network/TCP-gamma:0",
                                    "--cfg=surf/precision:1e-12",
                                    "--cfg=maxmin/precision:1e-13",
                                    "--cfg=contexts/stack-size:64"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  sg::Engine engine(&count, arguments.data());
  const std::vector<sg::Host*> hosts = build_platform(c, setup);
  std::deque<RankState> states;
  std::deque<Outbox> outboxes;
  for (std::size_t r = 0; r < setup.programs.size(); ++r) {
    const Program& program = setup.programs[r];
    RankState& state = states.emplace_back();
    state.completed.resize(program.lanes.size());
    for (std::size_t l = 0; l < program.lanes.size(); ++l) {
      Outbox& outbox = outboxes.emplace_back();
      sg::ActorPtr actor = sg::Actor::create("lane", hosts[r], [&setup, r, l, &state, &outbox] {
        run_lane(setup, static_cast<int>(r), static_cast<int>(l), &state, &outbox);
      });
      sg::Actor::create("sender", hosts[r], [&outbox] { run_sender(&outbox); });
      // Messages travel also while the receiver is elsewhere.
      for (const Block& block : program.lanes[l].blocks)
        for (std::int32_t s = block.begin; s < block.end; ++s) {
          const Step& step = program.steps[static_cast<std::size_t>(s)];
          for (int k = 0; k < step.sources; ++k) {
            const Operand& o = program.operands[static_cast<std::size_t>(step.first_operand + k)];
            if (o.kind == Operand::Kind::peer)
              sg::Mailbox::by_name(mailbox_name(o.peer, static_cast<int>(r), o.channel))
                  ->set_receiver(actor);
          }
        }
    }
  }
  engine.run();
  return sg::Engine::get_clock();
}

double simgrid_seconds(const Case& c, const Setup& setup) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    try {
      const double seconds = time_in_this_process(c, setup);
      _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
    } catch (const std::exception& e) {
      fprintf(stderr, "SimGrid: %.400s\n", e.what());
      _exit(2);
    }
  }
  close(ends[1]);
  double seconds = -1;
  if (read(ends[0], &seconds, sizeof seconds) != sizeof seconds) seconds = -1;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return seconds;
}

void compare(const Case& c) {
  const Setup setup = set_up(c);
  if (setup.network == nullptr) return;
  const Result<Simulation> ours =
      simulate(*setup.network, [&](std::int32_t r) { return setup.programs[static_cast<std::size_t>(r)]; },
               {.bytes = c.bytes});
  ASSERT_TRUE(ours) << ours.error().message;
  const double theirs = simgrid_seconds(c, setup);
  EXPECT_NEAR(ours->seconds, theirs, 1e-6 * theirs)
      << c.machine.name << ", " << c.algorithm << ", " << c.lanes << " lanes";
}

Machine bare(Machine machine) {
  machine.model = {};
  machine.model.startup_s = 0;
  machine.model.inside_startup_s = 0;
  for (HostKind& kind : machine.kinds)
    for (PartLink& link : kind.links) link.latency_s = 0;
  return machine;
}
Machine torus(const std::vector<std::int32_t>& sizes) {
  std::vector<TorusAxis> axes;
  for (const std::int32_t size : sizes) axes.push_back({.size = size, .wraps = true});
  Machine machine = bare(torus_machine(axes));
  auto& fabric = std::get<Torus>(machine.fabric);
  fabric.link_bandwidth = 6.8e9;
  fabric.engines = 2 * static_cast<std::int32_t>(sizes.size());
  fabric.hop_latency_s = 0;
  return machine;
}
/// SimGrid's torus has links only.
Machine unlimited(Machine machine) {
  std::get<Torus>(machine.fabric).engine_bandwidth = 1e15;
  return machine;
}
Machine rails(std::int32_t hosts, std::int32_t pod, std::int32_t spines) {
  Machine machine = bare(rail_machine(hosts, 8));
  auto& fabric = std::get<LeafSpine>(machine.fabric);
  fabric.hosts_per_pod = pod;
  fabric.spines = spines;
  fabric.uplink_bandwidth = fabric.nic_bandwidth * pod / (2.0 * spines);  // two to one
  fabric.nic_latency_s = fabric.uplink_latency_s = 0;
  return machine;
}
double whole(int ranks, double bytes) {
  return std::ceil(bytes / ranks / 5040) * ranks * 5040;
}  // chunks of whole bytes

TEST(SimGrid, torus512) {
  const double n = whole(512 * 6, 64e6);
  for (const auto& [name, lanes] : {std::pair("torus", 6), {"recursive_doubling", 1}, {"rabenseifner", 1}})
    compare({.machine = torus({8, 8, 8}), .algorithm = name, .lanes = lanes, .bytes = n});
}

TEST(SimGrid, itsOwnRoutesOnTori) {
  for (const std::vector<std::int32_t>& sizes : {std::vector<std::int32_t>{8, 8, 8}, {5, 3, 7}, {9, 4}})
    compare({.machine = unlimited(torus(sizes)),
             .algorithm = "torus",
             .lanes = 2 * static_cast<int>(sizes.size()),
             .bytes = whole(512 * 6 * 315, 64e6),
             .routes = Case::Routes::of_simgrid});
  compare({.machine = unlimited(torus({8, 8})),
           .algorithm = "swing",
           .lanes = 4,
           .bytes = whole(64 * 4, 1e7),
           .routes = Case::Routes::of_simgrid});
  compare({.machine = unlimited(torus({5, 3, 7})),
           .algorithm = "recursive_doubling",
           .bytes = 1e7,
           .routes = Case::Routes::of_simgrid});
  compare({.machine = unlimited(torus({5, 3, 7})),
           .collective = Collective::alltoall,
           .algorithm = "pairwise",
           .bytes = 105 * 105 * 5040,
           .routes = Case::Routes::of_simgrid});
}

TEST(SimGrid, oddToriAndManyAlgorithms) {
  const double n = whole(5 * 3 * 2 * 420, 1e7);
  for (const char* name : {"ring", "chain", "knomial", "rabenseifner", "bine"})
    compare({.machine = torus({5, 3, 2}), .algorithm = name, .bytes = n});
  compare({.machine = torus({5, 3, 2}),
           .collective = Collective::alltoall,
           .algorithm = "pairwise",
           .bytes = n});
  compare(
      {.machine = torus({5, 3, 2}), .collective = Collective::alltoall, .algorithm = "bruck", .bytes = n});
  compare(
      {.machine = torus({5, 3, 2}), .collective = Collective::allgather, .algorithm = "bruck", .bytes = n});
  compare({.machine = torus({5, 3, 2}),
           .collective = Collective::reduce_scatter,
           .algorithm = "bruck",
           .bytes = n});
  Machine one_engine = torus({7, 5, 3});
  std::get<Torus>(one_engine.fabric).engines = 1;
  for (const char* name : {"double_tree", "rabenseifner", "recursive_doubling"})
    compare({.machine = one_engine, .algorithm = name, .lanes = 2, .bytes = n});
  compare(
      {.machine = torus({5, 3, 2}),
       .algorithm = "ring",
       .bytes = n,
       .network = {.faults = {{.kind = Fault::Kind::link, .link = "axis 1 + (2,1,0)", .factor = 0.3}}}});
}

TEST(SimGrid, leafSpine) {
  const double n = whole(512 * 8, 64e6);
  for (const char* name : {"ring", "rabenseifner", "recursive_doubling", "hierarchical", "rail"})
    compare({.machine = rails(8, 4, 4), .algorithm = name, .bytes = n, .network = {.seed = 5}});
  // Thousands of transfers at rates from 6 to 450 GB/s that are out of step: a femtosecond here decides who
  // is first there, and moves the end by 5 ppm. Long transfers make femtoseconds small.
  compare({.machine = rails(8, 4, 4),
           .collective = Collective::alltoall,
           .algorithm = "pairwise",
           .bytes = n * 1e4,
           .network = {.seed = 5}});
  compare(
      {.machine = rails(64, 16, 8), .algorithm = "recursive_doubling", .bytes = n, .network = {.seed = 9}});
}

}  // namespace
}  // namespace tamaki
