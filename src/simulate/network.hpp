#pragma once
// Links and routes of a machine, between the ranks of a job: what messages share, and how far they go.
//
// A message crosses, in order: the sender's engine (a NIC, a TNI), what its host injects altogether, links
// of the fabric, and the same at the receiver. Each of these is a link here, of one direction, and messages
// that cross it at the same time share it. Between ranks of a host: links of the host (NVLink, PCIe), or
// where none are described a link of each rank of NetworkModel::inside_bandwidth.
//
// Routes are fixed for a sender, a receiver, their lanes and a seed:
//   tori, dimension order    axis 0 first, each the shorter way round; halfway round even lanes go upwards
//   and
//                            odd ones downwards, so that the two lanes of a pair of opposite rings part
//   Tofu                     A, B, C to path coordinates, X, Y, Z in order, then A, B, C to the destination
//                            (Fujitsu, uTofu User's Guide J2UL-2567, 2.4). The path has the sender's
//                            coordinates, so a message goes X, Y, Z, A, B, C; with a seed each of the three
//                            is the sender's or the receiver's by hash: all of these are of least length
//   leaf-spine               the rail's leaf where both NICs are on it, else a spine by hash of (seed, both
//                            NICs, lane), as ECMP does
//   other graphs             least number of cables, ties by hash
// Broken links are avoided where another such route exists.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"
#include "topology/placement/placement.hpp"

namespace tamaki {

struct Route {
  std::vector<std::int32_t> links;  // different ones, from the sender on
  double latency_s = 0;             // from the last byte's departure to its being known at the receiver
  std::int32_t hops = 0;            // of the fabric
  bool inside = false;              // between ranks of one host
};

/// Something that is slower than the machine says. `factor`: of its rate; 0: broken.
struct Fault {
  enum class Kind : std::uint8_t {
    host,  // all its engines, its injection and its local reductions; not 0
    link,  // named as link_name() does
  };
  Kind kind = Kind::host;
  std::int32_t host = 0;
  std::string link = {};
  double factor = 1;
};

struct NetworkOptions {
  std::uint64_t seed = 0;  // of ECMP and of Tofu's paths
  std::vector<Fault> faults = {};
};

class Network {
 public:
  enum class LinkKind : std::uint8_t { engine, injection, fabric, inside };

  /// `placement` has ranks on hosts of the machine, which must satisfy check(). Errors: a fault that names
  /// no host or link of it, with those that there are.
  static Result<std::unique_ptr<Network>> of(const Machine& machine, const Placement& placement,
                                             const NetworkOptions& options = {});
  virtual ~Network() = default;

  std::int32_t ranks() const { return placement_.size(); }
  const Machine& machine() const { return machine_; }
  const NetworkModel& model() const { return machine_.model; }
  const Placement& placement() const { return placement_; }
  std::int32_t links() const { return static_cast<std::int32_t>(capacity_.size()); }
  /// Payload bytes a second of a link, efficiency and faults counted. 0: broken.
  double capacity(std::int32_t link) const { return capacity_[static_cast<std::size_t>(link)]; }
  LinkKind kind(std::int32_t link) const;
  /// "X+ (3,0,7,1,2,0)", "nic 4 of host 12, out", "leaf 3 to spine 1".
  std::string link_name(std::int32_t link) const;
  /// Number of the engine that `lane` of `rank` sends with; engines of all ranks are numbered together.
  std::int32_t engine(std::int32_t rank, std::int32_t lane) const;
  std::int32_t engine_count() const { return ranks() * engines_a_rank_; }
  /// Rate of local work of a rank against the machine's, by faults.
  double rank_speed(std::int32_t rank) const;
  /// Bytes a second that a rank can send at most, by all its lanes; to other hosts.
  double rank_rate(std::int32_t rank) const;
  /// Bytes a second that a host can send to others.
  double host_rate(std::int32_t host) const;

  /// From whom to whom, and on which lanes: the sender's decides which engine it leaves by (and ties of
  /// routes), the receiver's which engine it arrives at.
  struct Ends {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::int32_t lane = 0;
    std::int32_t receiver_lane = 0;
  };
  /// The way of messages. Error: every way is broken. One thread at a time (paths that were found are
  /// kept).
  Status route(const Ends& ends, Route* route) const;

 protected:
  Network(const Machine& machine, const Placement& placement, const NetworkOptions& options);
  /// A way through the fabric between hosts: which NICs at its ends, and lane and number of the attempt: 0
  /// is the way that is taken when nothing is broken.
  struct Way {
    const Place& from;
    const Place& to;
    std::int32_t from_nic = 0, to_nic = 0;  // wished; a fabric that has no path between them takes others
    std::int32_t lane = 0;
    int attempt = 0;
  };
  /// Appends the fabric's links and adds to hops and latency. False: there is no (further) way.
  virtual bool fabric_route(Way* way, Route* route) const = 0;
  virtual std::string fabric_link_name(std::int32_t link) const = 0;
  /// NIC (or engine) that a lane of a rank uses.
  virtual std::int32_t nic_of(std::int32_t rank, std::int32_t lane) const = 0;
  virtual double nic_rate(std::int32_t host, std::int32_t nic) const = 0;
  virtual double injection_rate(std::int32_t host) const = 0;  // 0: no limit but the NICs

  std::int32_t add(double bytes_per_s) {
    capacity_.push_back(bytes_per_s);
    return static_cast<std::int32_t>(capacity_.size()) - 1;
  }
  /// Adds the links of hosts; to be called by the constructor of a fabric, before its own links.
  void add_hosts(std::int32_t nics_a_host);
  Status apply_faults();
  std::uint64_t hashed(std::uint64_t a, std::uint64_t b, std::uint64_t c) const;

  Machine machine_;
  Placement placement_;
  NetworkOptions options_;
  std::vector<double> capacity_;
  std::int32_t nics_ = 1;            // of the host that has most; engines
  std::int32_t engines_a_rank_ = 1;  // nics_
  std::int32_t first_fabric_ = 0;
  bool has_broken_ = false;

 private:
  struct HostPaths;  // inside a host of a kind
  std::int32_t nic_out(std::int32_t host, std::int32_t nic) const { return (host * nics_ + nic) * 2; }
  bool inside_route(const Place& from, const Place& to, std::int32_t source, std::int32_t destination,
                    Route* route) const;
  void host_path(std::int32_t host, Part from, Part to, Route* route) const;
  enum class End : std::uint8_t { sender, receiver };
  void nic_path(const Place& place, std::int32_t nic, End end, Route* route) const;
  Part part_of(const Place& place) const;

  std::int32_t first_injection_ = 0;  // 2 a host
  std::int32_t first_rank_ = 0;       // 2 a rank: what it sends and gets inside its host
  std::int32_t first_inside_ = 0;     // links of hosts: host * most_links_ * 2 + link * 2 + way
  std::int32_t most_links_ = 0;
  std::vector<double> host_factor_;                // by faults
  std::vector<std::shared_ptr<HostPaths>> paths_;  // of each host kind
};

}  // namespace tamaki
