#pragma once
// A machine as a value: what a host is made of, how hosts are joined, and the constants of the time model.
// Read from a description (machine_from), found on this host (topology/discover/), imported from hwloc or
// NCCL (topology/parse/). The simulator derives links and routes from it; algorithms see only
// topology/topology.hpp.
//
// Units everywhere: bytes, bytes per second of one direction, seconds. Regular fabrics stay compact:
// 158,976 hosts are one host kind and one torus. Values are equal and hash alike when everything but their
// notes is the same.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace tamaki {

// ---- inside a host -------------------------------------------------------------------------------------

/// A part of a host: kind and index among the parts of that kind in HostKind.
struct Part {
  enum class Kind : std::uint8_t { numa, gpu, nic, hub };
  Kind kind = Kind::numa;
  std::int32_t index = 0;
  auto operator<=>(const Part&) const = default;
};

struct CpuSocket {
  std::string model = {};  // "Intel(R) Xeon(R) Platinum 8480C"; may be empty
  bool operator==(const CpuSocket&) const = default;
};

/// Cores that share a memory: a NUMA node of Linux, a CMG of A64FX.
struct NumaDomain {
  std::int32_t socket = 0;  // index in HostKind::sockets
  std::int32_t cores = 1;
  double memory_bytes = 0;      // 0: not known
  double memory_bandwidth = 0;  // B/s, reads and writes together; 0: not known
  bool operator==(const NumaDomain&) const = default;
};

struct Gpu {
  std::string model = {};
  std::int32_t numa = -1;  // nearest NUMA domain; -1: not known
  std::string pci = {};    // "0000:1b:00.0"; empty: not known
  double memory_bytes = 0;
  double memory_bandwidth = 0;
  std::int32_t compute_capability = 0;  // "sm" of NCCL: 90 for H100; 0: not known or not NVIDIA's
  bool operator==(const Gpu&) const = default;
};

/// A network interface. `rail`: hosts' NICs of one rail reach each other through the fewest switches.
struct Nic {
  std::string name = {};  // "mlx5_0", "eth0", "tni0"
  std::int32_t numa = -1;
  std::string pci = {};
  double bandwidth = 0;    // B/s of the port, each direction; 0: not known
  double latency_s = 0;    // of the device itself
  std::int32_t rail = -1;  // -1: not known
  std::int32_t gpu = -1;   // GPU that it serves (the nearest one); -1: none
  bool operator==(const Nic&) const = default;
};

/// A device that only joins others: a PCIe switch or an NVSwitch complex.
struct Hub {
  enum class Kind : std::uint8_t { pcie, nvswitch };
  Kind kind = Kind::pcie;
  std::string pci = {};
  bool operator==(const Hub&) const = default;
};

/// A link of both directions between two parts of a host. Transfers on it share `bandwidth`, each direction
/// for itself.
struct PartLink {
  enum class Kind : std::uint8_t {
    memory,
    pcie,
    nvlink,
    processor,
    other
  };  // processor: UPI, xGMI, ring bus
  Part a, b;
  double bandwidth = 0;  // > 0
  double latency_s = 0;
  Kind kind = Kind::other;
  bool operator==(const PartLink&) const = default;
};

/// What the hosts of one kind are made of. Invariants (check()): at least one socket and one NUMA domain;
/// indices are in range; links join different parts that exist, at most one link of a kind between two
/// parts.
struct HostKind {
  std::string name = "host";
  std::int32_t slots = 1;  // ranks that a host takes by default
  std::vector<CpuSocket> sockets = {{}};
  std::vector<NumaDomain> numa = {{}};
  std::vector<Gpu> gpus = {};
  std::vector<Nic> nics = {};
  std::vector<Hub> hubs = {};
  std::vector<PartLink> links = {};
  bool operator==(const HostKind&) const = default;
};

// ---- between hosts -------------------------------------------------------------------------------------

/// Every NIC of every host behind one switch that does not block. Also the fabric of a single host.
struct Crossbar {
  double link_bandwidth = 1.25e9;  // host to switch, each NIC, each direction
  double link_latency_s = 0;
  bool operator==(const Crossbar&) const = default;
};

struct TorusAxis {
  std::string name = {};  // "X", "A"; may be empty
  std::int32_t size = 1;
  bool wraps = true;  // false: a mesh (a line). Of size 2 it is one link either way where `wraps` is
                      // false, and two parallel links where it is true.
  bool operator==(const TorusAxis&) const = default;
};

/// How one dimension that a job sees lies on the physical axes: coordinate i is at `points[i]`, which has
/// one physical coordinate for each of `axes`. Dimensions lie on disjoint axes, so a node's physical place
/// is the union of the three.
struct LogicalAxis {
  std::vector<std::int32_t> axes = {};                 // indices in Torus::axes
  std::vector<std::vector<std::int32_t>> points = {};  // size x axes.size()
  bool wraps = true;                                   // last and first are neighbours too
  bool operator==(const LogicalAxis&) const = default;
};

/// Hosts at the points of a torus or mesh of any dimension, each with a router. Host number = row-major
/// position (last dimension fastest) in the logical dimensions where there are such, else in the axes. A
/// physical point that no host of the job is at has a router all the same (hosts_at_points() gives -1
/// there).
struct Torus {
  enum class Routing : std::uint8_t {
    dimension_order,  // axis 0 first, the shorter way round (ties: upwards)
    tofu,             // the last three axes (A, B, C) to path coordinates, then the others in
                      // order, then the last three to the destination; Fujitsu uTofu User's Guide 2.4
  };
  std::vector<TorusAxis> axes = {};
  std::vector<LogicalAxis> logical = {};  // empty: hosts are at every point, logical = axes
  double link_bandwidth = 1.25e9;         // one link, each direction
  std::int32_t engines =
      1;  // messages that a host can send (and, beside them, receive) at once at full rate
  double engine_bandwidth = 0;  // one engine; 0: that of a link
  double injection_bandwidth =
      0;  // all engines of a host together, each direction; 0: engines x engine_bandwidth
  double hop_latency_s = 0;  // a router and a link
  Routing routing = Routing::dimension_order;
  bool operator==(const Torus&) const = default;

  /// Hosts of the job; physical points (>= hosts).
  std::int64_t hosts() const;
  std::int64_t points() const;
  /// Sizes and wrap of the dimensions that a job sees.
  std::vector<TorusAxis> dimensions() const;
  /// Coordinates in dimensions() of host `host` (0 <= host < hosts()), and back.
  std::vector<std::int32_t> logical_coordinates(std::int64_t host) const;
  std::int64_t host_of_logical(const std::vector<std::int32_t>& coordinates) const;
  /// Coordinates of host `host` on the physical axes.
  std::vector<std::int32_t> coordinates(std::int64_t host) const;
  /// Row-major number of a physical point, and its coordinates.
  std::int64_t point_of(const std::vector<std::int32_t>& coordinates) const;
  std::vector<std::int32_t> point_coordinates(std::int64_t point) const;
  /// Host number at each physical point, -1 where there is none: points() entries. Made anew at each call.
  std::vector<std::int32_t> hosts_at_points() const;
  /// Links to cross between two physical points by the shortest way.
  std::int32_t hops(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) const;
  double engine_rate() const { return engine_bandwidth > 0 ? engine_bandwidth : link_bandwidth; }
  double injection_rate() const {
    return injection_bandwidth > 0 ? injection_bandwidth : engines * engine_rate();
  }
};

/// Two levels of switches. Every leaf has a link of `uplink_bandwidth` to every spine.
///
/// Rail-optimized: hosts are cut into pods of `hosts_per_pod`; each pod has one leaf per rail, and NIC k of
/// its hosts is on the leaf of rail k (number pod * rails + k). Otherwise a pod has one leaf, which all
/// NICs of its hosts are on.
struct LeafSpine {
  std::int32_t nics_per_host = 1;  // = rails where rail_optimized
  bool rail_optimized = true;
  std::int32_t hosts_per_pod = 1;
  std::int32_t spines = 1;
  double nic_bandwidth = 50e9;     // NIC to leaf, each direction
  double uplink_bandwidth = 50e9;  // one leaf to one spine, each direction
  double nic_latency_s = 0;        // NIC to leaf: cable and leaf
  double uplink_latency_s = 0;     // leaf to spine: cable and spine
  bool operator==(const LeafSpine&) const = default;

  std::int32_t pods(std::int32_t hosts) const { return (hosts + hosts_per_pod - 1) / hosts_per_pod; }
  std::int32_t leaves(std::int32_t hosts) const {
    return pods(hosts) * (rail_optimized ? nics_per_host : 1);
  }
  /// The leaf that NIC `nic` of host `host` is on.
  std::int32_t leaf_of(std::int32_t host, std::int32_t nic) const {
    const std::int32_t pod = host / hosts_per_pod;
    return rail_optimized ? pod * nics_per_host + nic : pod;
  }
  /// Bandwidth of a leaf to its hosts over that to the spines: 1 is full bisection, 2 is two to one.
  double oversubscription() const {
    const double down = nic_bandwidth * hosts_per_pod * (rail_optimized ? 1 : nics_per_host);
    return down / (uplink_bandwidth * spines);
  }
};

/// Any switches and cables, one by one.
struct Graph {
  struct End {
    bool is_switch = false;
    std::int32_t index = 0;  // switch number, or host number
    std::int32_t nic = 0;    // of the host; 0 for a switch
    bool operator==(const End&) const = default;
  };
  struct Cable {
    End a, b;
    double bandwidth = 0;  // > 0, each direction
    double latency_s = 0;
    bool operator==(const Cable&) const = default;
  };
  std::int32_t switches = 0;
  std::vector<Cable> cables = {};
  bool operator==(const Graph&) const = default;
};

using Fabric = std::variant<Crossbar, Torus, LeafSpine, Graph>;

// ---- the time model ------------------------------------------------------------------------------------

/// Constants of the model of time. A message of b bytes over h links takes, alone in the machine,
///   startup_s + h * (latency of a link or hop) + b / (slowest of link, engine, injection, each times its
///   efficiency),
/// and rendezvous_s more where b > eager_bytes + h * eager_bytes_per_hop. A cluster file carries fitted
/// values.
struct NetworkModel {
  double startup_s =
      1e-6;  // from the call to the first byte on the wire, and delivery: "alpha" without hops
  double send_overhead_s = 0;       // for which the sending lane cannot start its next message
  double receive_overhead_s = 0;    // for which the receiving lane is taken after arrival
  double eager_bytes = 0;           // largest message that is sent without asking; 0: no rendezvous at all
  double eager_bytes_per_hop = 0;   // Fujitsu MPI's threshold grows with the distance
  double eager_bandwidth = 0;       // B/s of the extra copy of an eager message; 0: free
  double rendezvous_s = 0;          // extra time of a message above the threshold
  double link_efficiency = 1;       // payload's share of a link's bandwidth, (0, 1]
  double injection_efficiency = 1;  // share of the injection bandwidth that can be had, (0, 1]
  double reduce_bandwidth = 0;      // B/s of result that a rank reduces locally; 0: free
  double copy_bandwidth = 0;        // B/s that a rank copies locally; 0: free
  double step_s = 0;                // cost of each step of a schedule to the rank that runs it
  double inside_startup_s = 5e-7;   // as startup_s, between ranks of one host
  double inside_bandwidth =
      10e9;  // B/s between two ranks of one host where HostKind has no links on the way
  double inside_copy_bandwidth = 0;  // B/s at which a rank's processor reads what a rank of its host has for it, as part
                                     // of the step that takes it; nothing else moves such messages then. 0: links do
  bool operator==(const NetworkModel&) const = default;
};

/// Where figures come from. Two machines that differ only in notes are equal.
struct Note {
  enum class Kind : std::uint8_t { source, assumption, fit };
  std::string field = {};  // "fabric.link_bandwidth"
  Kind kind = Kind::source;
  std::string text = {};
};
struct Notes {
  std::vector<Note> list = {};
  friend bool operator==(const Notes&, const Notes&) { return true; }
};

// ---- the machine ---------------------------------------------------------------------------------------

/// Limits of a description, so that a hostile one is refused before it costs memory.
inline constexpr std::int64_t kMostHosts = 200'000;   // Fugaku has 158,976
inline constexpr std::int64_t kMostPoints = 400'000;  // routers of a torus
inline constexpr std::int32_t kMostAxes = 8;
inline constexpr std::int32_t kMostParts = 4'096;  // of each kind in a host
inline constexpr std::int64_t kMostCables = 2'000'000;

struct Machine {
  std::string name = "machine";
  std::int32_t hosts = 1;
  std::vector<HostKind> kinds = {{}};           // at least one
  std::vector<std::int32_t> kind_of_host = {};  // empty: all hosts are of kind 0
  std::vector<std::string> host_names = {};     // empty: not named
  Fabric fabric = Crossbar{};
  NetworkModel model = {};
  Notes notes = {};
  bool operator==(const Machine&) const = default;

  const HostKind& host(std::int32_t h) const {
    return kinds[kind_of_host.empty()
                     ? 0
                     : static_cast<std::size_t>(kind_of_host[static_cast<std::size_t>(h)])];
  }
  const Torus* torus() const { return std::get_if<Torus>(&fabric); }
  const LeafSpine* leaf_spine() const { return std::get_if<LeafSpine>(&fabric); }
  /// Ranks that the machine takes by default: the slots of its hosts.
  std::int64_t slots() const;
};

/// All invariants: sizes within the limits, rates positive and finite, indices in range, hosts =
/// Torus::hosts(). Errors (Code::invalid_argument) name the field as a description does,
/// "fabric.link_bandwidth: ...".
Status check(const Machine& machine);

/// Equal machines have equal hashes, on every host and in every version that writes the same description.
std::uint64_t hash_of(const Machine& machine);

/// "fugaku:48x6x48: 13824 hosts, 48x6x48 torus (physical X24 Y2 Z24 A2 B3 C2), ..." - some lines for
/// people.
std::string describe(const Machine& machine);

/// The one way to name a machine, for every option and function that takes one:
///   "torus:8x8x8", "mesh:4x4", "torus:4x4x2m" (m: no wrap in that dimension; in mesh:, t: wrap)
///   "hosts:4x2"      4 hosts of 2 ranks behind one switch
///   "rails:100x8"    100 hosts of 8 ranks, GPUs and NICs, rail-optimized
///   "fugaku:48x6x48", "sakuraone", "eos", "dgx_h100", "laptop", ...: topology/clusters/, with a shape
///   where it takes one a path (it has a '/' or ends in .json or .xml) of a description, of hwloc XML or of
///   NCCL topology XML the text of such a file itself (it begins with '{' or '<')
/// Errors (Code::invalid_argument; Code::system where a file cannot be read) name file, line and field.
Result<Machine> machine_from(std::string_view text_or_path);

/// A torus or mesh in which logical = physical, one rank a host; rates as Torus' defaults. For tests and
/// strings.
Machine torus_machine(std::vector<TorusAxis> axes);
/// `hosts` hosts of `gpus` GPUs, NICs and ranks, rail-optimized, all hosts in one pod, full bisection.
Machine rail_machine(std::int32_t hosts, std::int32_t gpus);
/// `hosts` hosts of `slots` ranks behind one switch.
Machine switch_machine(std::int32_t hosts, std::int32_t slots);

}  // namespace tamaki

template <>
struct std::hash<tamaki::Machine> {
  std::size_t operator()(const tamaki::Machine& machine) const {
    return static_cast<std::size_t>(tamaki::hash_of(machine));
  }
};
