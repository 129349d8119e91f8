#pragma once
// The control plane of a job: ranks that have found and authenticated each other, joined by a tree of TCP connections
// that a service thread watches. It carries the exchanges of setup and the news of failures, never data.
//
// Before anything else is read from a connection, both ends prove knowledge of the job's secret (challenge and
// response, keyed hash); strangers are dropped without an answer and without harm to the job.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"
#include "transports/transport.hpp"

namespace tamaki {

struct Failure {
  Code code = Code::peer_lost;
  int rank = -1;        // of the job: who is lost, late or disagrees; -1: nobody in particular
  std::string message;  // complete sentence for tmkGetLastError, without full stop
};

/// What is known of a rank's stay in a communicator.
enum class Presence {
  here,               // as far as is known
  left_communicator,  // has destroyed it
  left_job,           // has left the whole job
};

class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual std::span<const std::byte> secret() const = 0;  // 32 bytes
  /// Collective over the job, within the job's deadline.
  virtual Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Tells every rank of the job, by flooding the tree, that communicator `communicator` (0: the whole job) has
  /// failed. Does not block. Any thread.
  virtual void announce(std::uint64_t communicator, const Failure& failure) = 0;
  /// `listener` is called from the service thread for each announcement of others and each death seen (connection
  /// closed without a goodbye: communicator 0). Set null before what it refers to goes away; returns when no call is
  /// running.
  virtual void listen(std::function<void(std::uint64_t communicator, const Failure&)> listener) = 0;
  /// Tells every rank of the job that this rank has destroyed `communicator`. Call it when everything this rank sent
  /// there is where the receivers find it. Does not block. Any thread.
  virtual void leave(std::uint64_t communicator) = 0;
  /// Whether rank `rank` (of the job) has left `communicator` or the job in order. Heard through the tree: some tenths
  /// of a second late at most, if at all. Failures which that rank announced before it left have been handed to the
  /// listener by then. Any thread.
  virtual Presence presence(std::uint64_t communicator, int rank) const = 0;
  /// Says goodbye to the job, so that the end of this process is no failure to the others. What is announced or asked
  /// afterwards goes nowhere. Idempotent.
  virtual void depart() {}
  /// "rank 3 (host b, pid 123)", once identities are known, else "rank 3".
  virtual std::string describe(int rank) const = 0;
  virtual void set_identities(std::span<const RankIdentity> identities) = 0;
};

struct UniqueId {
  std::byte bytes[128];  // secret, addresses of the rendezvous; format in bootstrap.cpp
};
using AllgatherFunction = int (*)(const void* mine, void* all, std::size_t bytes, void* context);

/// Starts the rendezvous of a new job in this process and names it.
Result<UniqueId> make_unique_id();
Result<std::unique_ptr<Control>> join_by_id(const UniqueId& id, int rank, int ranks, int timeout_ms);
Result<std::unique_ptr<Control>> join_by_callbacks(int rank, int ranks, AllgatherFunction allgather, void* context,
                                                   int timeout_ms);
/// From the environment of tamaki run, Open MPI, Hydra, Slurm or torchrun; one rank where there is none.
Result<std::unique_ptr<Control>> join_by_environment(int timeout_ms);

/// This process, as its peers need to know it.
RankIdentity own_identity();
/// Fills in what only found_machine() asks for, once a job: NICs and, where the host has several, the NUMA domain (by hwloc,
/// some 10 ms there).
void find_surroundings(RankIdentity* self);
/// Names the group of processes with which the kernel lets this one share cores directly: its cpu control group, or,
/// outside of any, its autogroup (sched(7): one for each session, and some launchers give each rank a session). Equal
/// texts on one host: the same group. sched_yield hands the core on within a group only.
std::string scheduling_group();

}  // namespace tamaki
