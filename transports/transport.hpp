#pragma once
// What a transport is: it makes links between pairs of ranks of one communicator. A link is a ring of slots each way
// (see ring.hpp) plus facts about direct access to the peer's memory. The executor works on the rings inline; a
// transport whose rings are local to the process moves their slots in progress().
//
// Thread rules: setup(), connect() and progress() are called by the thread that is inside the communicator, one at a
// time. wake-ups come from anywhere.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/bell.hpp"
#include "transports/ring.hpp"

namespace tamaki {

/// Where a rank lives, exchanged before any transport is opened.
struct RankIdentity {
  std::uint64_t host = 0;           // digest of boot id, namespaces and what else tells containers apart
  std::uint64_t address_space = 0;  // equal for ranks that are threads of one process
  std::int32_t pid = 0;
  std::int32_t cores = 1;           // that this process may use: allowed ones, limited by its cgroup
  std::uint64_t core_mask[16] = {}; // allowed ones among the first 1,024, for counting ranks that share cores
  char host_name[48] = {};          // for messages
  std::int32_t nics = 0;            // network interfaces that tcp may use, without loopback
  std::int32_t numa = -1;           // domain of the cores that it may use; -1: of several, or the only one
  double nic_rate = 0;              // B/s of the slowest of them that says; 0: none does
  std::uint64_t scheduling_group = 0;  // digest of the group in which the kernel shares cores out (scheduling_group())
};

/// Collective exchange of equally many bytes of every rank, in rank order. Setup only.
using Exchange = std::function<Status(std::span<const std::byte> mine, std::span<std::byte> all)>;

class Transport;

/// Both directions to one peer on one channel. Plain data for the executor; owned by its transport.
struct Link {
  RingEnd out;
  RingEnd in;
  std::size_t slot_bytes = 0;
  int peer = -1;
  int channel = 0;
  Transport* transport = nullptr;
  Bell* bell = nullptr;         // the peer's; null where the transport wakes the peer by itself
  bool bell_shared = false;     // the bell is in memory shared between processes
  bool needs_flush = false;     // after commits (and releases) call transport->flush(link); an operation is over only
                                // when out.drained() says that the transport has passed its messages on
  bool common_memory = false;   // the peer's pointers are valid here (threads of one process)
  bool maps_regions = false;    // transport->map() resolves regions of tmkMemAlloc and tmkRegister
  bool can_get = false;         // transport->get() reaches the peer's private memory (process_vm_readv)
  bool can_put = false;         // transport->put() does (process_vm_writev)
  bool peer_can_get = false;    // the peer's get() reaches ours
  bool open = false;            // both ends exist; before that, poll transport->progress()

  void ring() {
    if (bell != nullptr && bell->sleeping.load(std::memory_order_relaxed) != 0) ring_bell(*bell, bell_shared);
  }
};

struct TransportContext {
  int rank = 0;
  std::span<const RankIdentity> ranks;
  std::uint64_t communicator = 0;      // number of the communicator, equal on all its ranks, unique in the job
  std::span<const std::byte> secret;   // of the job; 32 bytes
  std::size_t slot_bytes = 0;          // equal on all ranks
  std::uint32_t depth = 8;             // slots a ring
  Bell* own_bell = nullptr;            // process-private bell, for transports that have no better one
};

/// What a transport knows of the other end of a link.
enum class LinkEnd {
  unknown,
  here,  // joined to it: messages may come, and the end of the connection will be seen
  left,  // it has ended in order; what it sent is in the ring
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  /// Collective over the communicator: exactly the same number of calls of `exchange` on every rank, whatever
  /// happens. An error here means that this rank cannot use the transport; reaches() is then false on both sides.
  virtual Status setup(const Exchange& exchange) = 0;
  /// Both sides can use this transport to talk to each other. Same answer on both. `why`: reason of a no, in words.
  virtual bool reaches(int peer, std::string* why = nullptr) const = 0;
  /// This end of the link, made at first use. The link may not be `open` yet; it opens when the peer has done the
  /// same, in progress(). Never blocks.
  virtual Result<Link*> connect(int peer, int channel) = 0;
  /// Moves what can be moved without blocking. Errors name the peer.
  virtual Status progress() { return {}; }
  /// By what progress() has seen so far. Where it says `unknown`, the control plane's word on the peer counts, and what
  /// the peer sent before it left is in reach of progress().
  virtual LinkEnd end_of(const Link&) const { return LinkEnd::unknown; }
  virtual void flush(Link&) {}
  /// Descriptors to sleep on for news (empty: the bell is rung). Appended to `fds`.
  virtual void wait_descriptors(std::vector<int>* fds) const { (void)fds; }
  /// Local address of `bytes` of memory that `link`'s peer named; null if that is not possible or reaches beyond its region.
  virtual std::byte* map(Link&, const MemoryName&, std::size_t bytes) {
    (void)bytes;
    return nullptr;
  }
  /// Copies between this and the peer's private memory.
  virtual Status get(Link&, std::byte* local, std::uint64_t address, std::size_t bytes);
  virtual Status put(Link&, const std::byte* local, std::uint64_t address, std::size_t bytes);
  /// The bell of this rank that peers of this transport ring, or null.
  virtual Bell* own_bell() { return nullptr; }
  /// Facts for `tamaki info` and tests, e.g. "backing": "memfd", "single copy": "process_vm_readv".
  virtual std::vector<std::pair<std::string, std::string>> facts() const { return {}; }
};

struct TransportEntry {
  std::string_view name;
  Result<std::unique_ptr<Transport>> (*open)(const TransportContext&);
};
/// The transports of transports.def, in order of preference.
std::span<const TransportEntry> all_transports();
std::string transport_names();

}  // namespace tamaki
