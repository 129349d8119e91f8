#pragma once
// A communicator: the only place where schedules, selection, transports and the executor are put together.
//
// Life of a call: run() validates, finds the plan of (collective, counts, type, op, root) in the cache or makes it
// (select -> build -> compile), and drives the executor until the plan's last step. start() does the same without
// driving; progress happens in test(), wait() and in every other call on this communicator, or in the progress thread.
//
// Collectives of one communicator are executed one after the other in the order of their calls; point-to-point
// messages are ordered per peer and direction only, and make progress beside collectives.
//
// Threads: one at a time inside a communicator; others wait at the gate. abort() may be called from anywhere.

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/shared_region.hpp"
#include "communicator/control.hpp"
#include "execute/kernels.hpp"
#include "topology/topology.hpp"

namespace tamaki {

struct CommunicatorConfig {
  int timeout_ms = 30000;
  bool reproducible = false;
  bool progress_thread = false;
  bool check = false;
  std::string transports;  // names in order of preference, comma-separated
  std::string algorithm;   // rules for every collective; empty: the options' rules
  std::string name;
  /// Called by a rank that waits inside run() or wait(), from that thread, once it has spun in vain and then again at
  /// least every millisecond while it sleeps, so that a host library (MPI under the preload) makes progress on
  /// messages of its own that peers may be waiting for. Must not call this communicator. Null: never called.
  void (*on_idle)(void* context) = nullptr;
  void* idle_context = nullptr;
};
/// The configuration the options ask for.
Result<CommunicatorConfig> default_config();

/// One operation as its caller described it. Counts are in elements.
struct Call {
  Collective collective = Collective::allreduce;
  const void* input = nullptr;  // never TMK_IN_PLACE: the binding has replaced it by the in-place form's pointer
  void* output = nullptr;
  std::size_t count = 0;        // allreduce, reduce, broadcast: of the vector; others: of one block; send: of the message
  DataType type = DataType::float32;
  OpContext op;                 // reducing collectives; op.type, op.ranks are set by the communicator
  int root = 0;
  // Uneven blocks: elements. Null where not given or where the collective does not read them on this rank.
  // allgather, reduce_scatter: recv_counts of all ranks. gather: recv_counts and scatter: send_counts on root, with
  // `count` the own block. alltoall: both.
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_displacements = nullptr;
  const std::size_t* recv_counts = nullptr;
  const std::size_t* recv_displacements = nullptr;
  bool uneven = false;          // one of the v-forms
  // send_recv: either may be -1 (only the other half)
  int destination = -1;
  int source = -1;
  std::size_t recv_count = 0;   // send_recv only
};

class Communicator;
class Costs;

/// An operation that has been started. Owned by its communicator until test()/wait() reports completion.
struct Request {
  Communicator* communicator = nullptr;
  bool done = false;
  Status result;
};

class Communicator {
 public:
  virtual ~Communicator() = default;  // completes nothing: call finish() first for an orderly end

  /// Collective over the job of `control`.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<Control> control, CommunicatorConfig config);

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual const CommunicatorConfig& config() const = 0;
  virtual const Topology& topology() const = 0;

  virtual Status run(const Call& call) = 0;
  virtual Result<Request*> start(const Call& call) = 0;
  /// Checks a call without starting it.
  virtual Status validate(const Call& call) const = 0;
  /// Advances everything outstanding; request->done tells. After completion release(request) is due.
  virtual Status test(Request* request) = 0;
  virtual Status wait(Request* request) = 0;
  /// Index of a request that is done, blocking until there is one. Null entries are skipped; all null: -1. Requests
  /// may belong to several communicators.
  static Result<int> wait_any(std::span<Request* const> requests);
  virtual void release(Request* request) = 0;

  /// Collective. Null for ranks with colour < 0 (no colour).
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key, const CommunicatorConfig& config) = 0;

  /// Completes outstanding work, within the deadline.
  virtual Status finish() = 0;
  /// Makes the communicator unusable, here and (by an announcement) on all its ranks. Any thread.
  virtual void abort(const Failure& why) = 0;
  /// What made it unusable, or ok.
  virtual Status health() const = 0;
  virtual void set_timeout(int timeout_ms) = 0;

  /// Registered memory, see tmkRegister.
  virtual Result<void*> register_memory(void* buffer, std::size_t bytes) = 0;
  virtual Status deregister_memory(void* handle) = 0;

  /// Facts for `tamaki info` and `perf`: transports in use, plan cache, algorithm chosen for a size.
  virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;
  /// What algorithms cost for these ranks; null where it is not known where they are. tamaki perf --tune measures it.
  virtual Costs* costs() = 0;
  /// Name of the algorithm that would serve `call`, e.g. "direct_two_shot".
  virtual Result<std::string> algorithm_for(const Call& call) = 0;
};

/// Groups of calls (tmkGroupStart/End), per calling thread.
class Group {
 public:
  static Group& current();           // of this thread
  bool open() const { return depth_ > 0; }
  void start() { ++depth_; }
  /// At the outermost end: launches all calls, or none if one of them was in error, and waits for the blocking ones.
  Status end();
  /// Inside an open group: records a call. `request`: where a non-blocking call wants its request (set at end), or
  /// null for a blocking one.
  Status add(Communicator* communicator, const Call& call, Request** request);
  /// An error of argument checking inside an open group: the group will launch nothing.
  void fail(const Error& error);

 private:
  struct Entry {
    Communicator* communicator;
    Call call;
    Request** request;
    std::vector<std::size_t> counts[4];  // copies: the caller's arrays may be gone at the end
  };
  int depth_ = 0;
  std::vector<Entry> entries_;
  Status failure_;
};

}  // namespace tamaki
