#include "communicator/found_machine.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <vector>

namespace tamaki {
namespace {

constexpr double kUnknownNicRate = 1.25e9;  // 10 Gb/s

struct FoundHost {
  std::int32_t ranks = 0, cores = 1, nics = 1, domains = 1;
  std::int32_t quota = std::numeric_limits<std::int32_t>::max();  // cores
  double nic_rate = 0;                                            // of one
  std::uint64_t together[16] = {};
};

std::vector<FoundHost> hosts_of(std::span<const RankIdentity> ranks, Placement* placement) {
  std::map<std::uint64_t, std::int32_t> numbers;
  std::vector<FoundHost> hosts;
  for (const RankIdentity& rank : ranks) {
    const auto [at, added] = numbers.try_emplace(rank.host, static_cast<std::int32_t>(hosts.size()));
    if (added) hosts.push_back({.nics = std::max(1, rank.nics)});
    FoundHost& host = hosts[static_cast<std::size_t>(at->second)];
    placement->ranks.push_back({.host = at->second, .slot = host.ranks++, .numa = rank.numa});
    host.nics = std::min(host.nics, std::max(1, rank.nics));
    if (rank.nic_rate > 0 && (host.nic_rate == 0 || rank.nic_rate < host.nic_rate))
      host.nic_rate = rank.nic_rate;
    host.domains = std::max(host.domains, rank.numa + 1);
    int own = 0;
    for (int w = 0; w < 16; ++w) {
      host.together[w] |= rank.core_mask[w];
      own += std::popcount(rank.core_mask[w]);
    }
    if (rank.cores < own) host.quota = std::min(host.quota, rank.cores);  // of a container
  }
  for (FoundHost& host : hosts) {
    int cores = 0;
    for (const std::uint64_t word : host.together) cores += std::popcount(word);
    host.cores = std::max(1, std::min(cores, host.quota));
  }
  return hosts;
}

HostKind kind_of(const FoundHost& host) {
  HostKind kind{.slots = host.ranks,
                .numa = std::vector<NumaDomain>(static_cast<std::size_t>(host.domains))};
  kind.numa[0].cores = host.cores;
  for (std::int32_t nic = 0; nic < host.nics; ++nic)
    kind.nics.push_back({.name = "nic" + std::to_string(nic), .bandwidth = host.nic_rate, .rail = nic});
  return kind;
}

}  // namespace

FoundMachine found_machine(std::span<const RankIdentity> ranks) {
  FoundMachine found;
  Machine& m = found.machine;
  m.name = "found";
  m.kinds.clear();
  double slowest = 0, crowding = 1;
  for (const FoundHost& host : hosts_of(ranks, &found.placement)) {
    const HostKind kind = kind_of(host);
    const auto same = std::find(m.kinds.begin(), m.kinds.end(), kind);
    m.kind_of_host.push_back(static_cast<std::int32_t>(same - m.kinds.begin()));
    if (same == m.kinds.end()) m.kinds.push_back(kind);
    if (host.nic_rate > 0 && (slowest == 0 || host.nic_rate < slowest)) slowest = host.nic_rate;
    crowding = std::max(crowding, static_cast<double>(host.ranks) / host.cores);
  }
  m.hosts = static_cast<std::int32_t>(m.kind_of_host.size());
  if (m.kinds.size() == 1) m.kind_of_host.clear();
  m.fabric = Crossbar{.link_bandwidth = slowest > 0 ? slowest : kUnknownNicRate, .link_latency_s = 5e-6};
  // Where ranks share cores a message waits for its receiver's turn, and their work takes turns too.
  NetworkModel& model = m.model;
  model.startup_s = 15e-6 + 5e-6 * (crowding - 1);
  model.send_overhead_s = 3e-6;
  model.link_efficiency = 0.94;  // of TCP over IPv4 with frames of 1,500 bytes
  model.inside_startup_s = 5e-8 + 2e-6 * (crowding - 1);
  model.inside_copy_bandwidth = 14e9 / crowding;
  model.reduce_bandwidth = 14e9 / crowding;
  model.copy_bandwidth = 14e9 / crowding;
  model.step_s = 1.5e-7 * crowding;
  return found;
}

}  // namespace tamaki
