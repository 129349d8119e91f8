// tcp between two hosts with two interfaces each, made of network namespaces: over which interfaces do the
// bytes go?

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/socket.hpp"
#include "conformance/link_group.hpp"

namespace tamaki::testing {
namespace {

/// Runs a command of iproute2; false and its words in `said` if it fails.
bool run_command(const std::string& command, std::string* said) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return false;
  char text[256];
  std::string output;
  while (fgets(text, sizeof text, pipe) != nullptr) output += text;
  if (pclose(pipe) == 0) return true;
  *said = command + ": " + output;
  return false;
}
bool ip(const std::string& arguments, std::string* said) { return run_command("ip " + arguments, said); }

/// Hosts 0 and 1, joined by eth0 and eth1 of each. `addresses`: {interface, prefix up to the host's number,
/// length}.
class Hosts {
 public:
  struct Net {
    const char* interface;
    const char* prefix;
    int length;
    int only = -1;  // host that has it; -1: both
  };
  explicit Hosts(std::initializer_list<Net> nets) {
    if (geteuid() != 0) {
      reason_ = "network namespaces need root";
      return;
    }
    for (int host = 0; host < 2; ++host)
      if (!ip("netns add " + name(host), &reason_)) return;
    for (int host = 0; host < 2; ++host)
      if (!ip("-n " + name(host) + " link set lo up", &reason_)) return;
    for (const char* interface : {"eth0", "eth1"}) {
      const std::string eth(interface);
      if (!ip("link add " + eth + " netns " + name(0) + " type veth peer name " + eth + " netns " + name(1),
              &reason_))
        return;
      for (int host = 0; host < 2; ++host)
        if (!ip("-n " + name(host) + " link set " + eth + " up", &reason_)) return;
    }
    for (const Net& net : nets)
      for (int host = 0; host < 2; ++host)
        if (net.only != 1 - host &&
            !ip("-n " + name(host) + " addr add " + net.prefix + std::to_string(host + 1) + "/" +
                    std::to_string(net.length) + " dev " + net.interface +
                    (std::strchr(net.prefix, ':') != nullptr ? " nodad" : ""),
                &reason_))
          return;
  }
  ~Hosts() {
    std::string ignored;
    for (int host = 0; host < 2; ++host) ip("netns del " + name(host), &ignored);
  }
  /// Why there are no hosts; empty: there are.
  const std::string& reason() const { return reason_; }

  /// Limits what both hosts send over `interface`. False: the kernel cannot, `said` has its words.
  static bool shape(const std::string& interface, const std::string& rate, std::string* said) {
    for (int host = 0; host < 2; ++host)
      if (!run_command("tc -n " + name(host) + " qdisc add dev " + interface + " root handle 1: htb default 10", said) ||
          !run_command("tc -n " + name(host) + " class add dev " + interface + " parent 1: classid 1:10 htb rate " + rate +
                           " ceil " + rate + " burst 32k cburst 32k quantum 60000", said))
        return false;
    return true;
  }

  /// Runs `body` as rank `host` in a process on each host. Failures of the children are the test's.
  void run(const char* interfaces, const std::function<void(Rank&)>& body) const {
    register_for_bells();
    Board board(2);
    std::array<pid_t, 2> children{};
    for (int host = 0; host < 2; ++host) {
      children[static_cast<std::size_t>(host)] = fork();
      if (children[static_cast<std::size_t>(host)] != 0) continue;
      const FileDescriptor space(open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC));
      if (!space || setns(space.get(), CLONE_NEWNET) != 0) _exit(2);
      setenv("TAMAKI_INTERFACES", interfaces, 1);
      {
        Rank rank{.rank = host, .ranks = 2, .board = &board, .identities = identities_here(2, false)};
        rank.identities[1].host = 43;
        const std::string trouble =
            open_rank(transport_named("tcp"), rank, {.slot_bytes = 65536, .depth = 8});
        EXPECT_EQ(trouble, "");
        if (trouble.empty()) body(rank);
      }
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    for (const pid_t child : children) {
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0) << "a rank failed, see above";
    }
  }

 private:
  static std::string name(int host) {
    return "tmk" + std::to_string(getpid_of_test()) + "h" + std::to_string(host);
  }
  static pid_t getpid_of_test() {
    static const pid_t pid = getpid();  // the children use the names of their parent
    return pid;
  }
  std::string reason_;
};

/// Bytes that each interface of this process's namespace has sent.
std::map<std::string, std::uint64_t> sent_bytes() {
  std::map<std::string, std::uint64_t> all;
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int i = 0; i <= 8; ++i) fields >> value;  // eight of receiving, then bytes sent
    all[line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '))] = value;
  }
  return all;
}

constexpr int kLanes = 4;
constexpr std::uint32_t kMessages = 40;
constexpr std::size_t kMessageBytes = 65536;
constexpr std::uint64_t kTotal = std::uint64_t{kLanes} * kMessages * kMessageBytes;

/// Rank 0 sends kTotal bytes to rank 1, equally over the lanes; the content is checked.
void stream(Rank& rank) {
  std::vector<Link*> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes.push_back(rank.link(1 - rank.rank, lane));
    if (lanes.back() == nullptr) return;
  }
  for (std::uint32_t n = 0; n < kMessages; ++n)
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::vector<std::byte> data = content(static_cast<std::uint64_t>(lane), n, kMessageBytes);
      if (rank.rank == 0 ? !send(rank, *lanes[static_cast<std::size_t>(lane)], data, n)
                         : !receive(rank, *lanes[static_cast<std::size_t>(lane)], data, n))
        return;
    }
  for (Link* link : lanes) rank.finish(*link);
  rank.barrier();  // all has arrived, so all has been counted
}

/// Share of kTotal that an interface of rank 0 has carried since `before`.
double share(const std::map<std::string, std::uint64_t>& before, const std::string& interface) {
  auto after = sent_bytes();
  return static_cast<double>(after[interface] - before.at(interface)) / static_cast<double>(kTotal);
}

TEST(Netns, LanesSpreadOverBothInterfaces) {
  const Hosts hosts({{"eth0", "10.90.0.", 24}, {"eth1", "10.91.0.", 24}});
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  hosts.run("", [](Rank& rank) {
    const auto before = sent_bytes();
    stream(rank);
    if (rank.rank != 0) return;
    for (const char* interface : {"eth0", "eth1"}) {
      EXPECT_GT(share(before, interface), 0.35) << interface;  // each helps the other when that is full
      EXPECT_LT(share(before, interface), 0.7) << interface;
      std::printf("%s carried %.3f of the bytes\n", interface, share(before, interface));
    }
  });
}

TEST(Netns, TheLoadFollowsTheRates) {
  const Hosts hosts({{"eth0", "10.90.0.", 24}, {"eth1", "10.91.0.", 24}});
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  std::string said;
  if (!Hosts::shape("eth0", "100mbit", &said) || !Hosts::shape("eth1", "400mbit", &said)) GTEST_SKIP() << said;
  hosts.run("", [](Rank& rank) {
    const auto before = sent_bytes();
    stream(rank);
    if (rank.rank != 0) return;
    for (const char* interface : {"eth0", "eth1"}) std::printf("%s carried %.3f of the bytes\n", interface, share(before, interface));
    // Lanes 0 and 2 are at home on eth0, and half of the bytes with them; by the rates it is to carry a fifth, and what
    // fills its buffers at the start.
    EXPECT_GT(share(before, "eth1"), 0.56);
    EXPECT_GT(share(before, "eth0"), 0.08);
  });
}

TEST(Netns, WorksWithIpv6Only) {
  const Hosts hosts({{"eth0", "fd90::", 64}, {"eth1", "fd91::", 64}});
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  hosts.run("", [](Rank& rank) {
    const auto before = sent_bytes();
    stream(rank);
    if (rank.rank != 0) return;
    EXPECT_GT(share(before, "eth0"), 0.35);
    EXPECT_GT(share(before, "eth1"), 0.35);
    bool six = false;
    for (const auto& [key, value] : rank.transport->facts())
      six = six || value.find("[fd90::1]") != std::string::npos;
    EXPECT_TRUE(six);
  });
}

TEST(Netns, TakesTheChosenInterfaceOnly) {
  const Hosts hosts({{"eth0", "10.90.0.", 24}, {"eth1", "10.91.0.", 24}});
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  for (const char* rule : {"eth1", "10.91.0.0/16", "^eth0"})
    hosts.run(rule, [](Rank& rank) {
      const auto before = sent_bytes();
      stream(rank);
      if (rank.rank != 0) return;
      EXPECT_LT(share(before, "eth0"), 0.01);
      EXPECT_GT(share(before, "eth1"), 0.98);
    });
}

// Each host has a network that the other one does not share, and one of them on its first interface.
TEST(Netns, FindsTheCommonNetwork) {
  const Hosts hosts({{"eth0", "10.70.0.", 24, 0}, {"eth0", "fd70::", 64, 1}, {"eth1", "10.91.0.", 24}});
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  hosts.run("", [](Rank& rank) {
    const auto before = sent_bytes();
    stream(rank);
    if (rank.rank == 0) {
      EXPECT_GT(share(before, "eth1"), 0.98);
    }
  });
}

TEST(Netns, SaysThatLoopbackReachesNoOtherHost) {
  Board board(2);
  // No address but loopback's is left: ranks of different hosts are told so, on both sides.
  std::array<pid_t, 2> children{};
  for (int r = 0; r < 2; ++r) {
    children[static_cast<std::size_t>(r)] = fork();
    if (children[static_cast<std::size_t>(r)] != 0) continue;
    setenv("TAMAKI_INTERFACES", "lo", 1);
    Rank rank{.rank = r, .ranks = 2, .board = &board, .identities = identities_here(2, false)};
    rank.identities[1].host = 43;
    const std::string reason = open_rank(transport_named("tcp"), rank, Geometry{});
    EXPECT_NE(reason.find("no address here fits"), std::string::npos) << reason;
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace tamaki::testing
