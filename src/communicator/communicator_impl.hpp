#pragma once
// The implementation behind Communicator. Files: communicator.cpp (calls and progress), open.cpp (making one, links,
// plans), split.cpp (children), check.cpp (comparison of arguments).

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fork.hpp"
#include "base/options.hpp"
#include "communicator/communicator.hpp"
#include "communicator/job.hpp"
#include "communicator/plan_cache.hpp"
#include "execute/executor.hpp"
#include "execute/waiter.hpp"

namespace tamaki {

/// Channels above those of algorithms' lanes.
inline constexpr int kMessageChannel = 120;  // tmkSend, tmkRecv
inline constexpr int kSetupChannel = 121;    // exchanges for children of a communicator
inline constexpr int kCheckChannel = 122;    // comparison of arguments

struct RequestState : Request {
  enum class Queue { collective, message, self } queue = Queue::collective;
  Execution execution;
  OpContext op;
  CachedPlan* plan = nullptr;
  // messages
  int destination = -1, source = -1;
  // to and from the own rank
  const void* self_data = nullptr;
  void* self_place = nullptr;
  std::size_t self_bytes = 0;
  bool self_send = false;
  RequestState* other_half = nullptr;  // tmkSendrecv: done when both are
  std::int64_t stuck_since_ns = 0;     // first slow look without progress
};

/// One thread at a time. Reentrant it is not.
class Gate {
 public:
  void enter() {
    if (!taken_.exchange(true, std::memory_order_acquire)) return;  // pairs with leave()
    wait();
  }
  bool try_enter() { return !taken_.exchange(true, std::memory_order_acquire); }
  void leave() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();
  std::atomic<bool> taken_{false};
};

class CommunicatorImpl final : public Communicator {
 public:
  struct Origin {
    std::shared_ptr<Job> job;
    std::uint64_t id = 0;
    std::vector<int> members;  // job ranks, in order of the ranks here
    int rank = 0;              // here
    Exchange exchange;
    CommunicatorConfig config;
  };
  static Result<std::unique_ptr<Communicator>> open(Origin origin);
  ~CommunicatorImpl() override;

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(members_.size()); }
  const CommunicatorConfig& config() const override { return config_; }
  const Topology& topology() const override { return topology_; }

  Status run(const Call& call) override;
  Result<Request*> start(const Call& call) override;
  Status validate(const Call& call) const override;
  Status test(Request* request) override;
  Status wait(Request* request) override;
  void release(Request* request) override;
  Result<std::unique_ptr<Communicator>> split(int color, int key, const CommunicatorConfig& config) override;
  Status finish() override;
  void abort(const Failure& why) override;
  Status health() const override;
  void set_timeout(int timeout_ms) override { config_.timeout_ms = timeout_ms; }
  Result<void*> register_memory(void* buffer, std::size_t bytes) override;
  Status deregister_memory(void* handle) override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
  Result<std::string> algorithm_for(const Call& call) override;
  Costs* costs() override { return costs_.get(); }

 private:
  CommunicatorImpl() = default;
  // open.cpp
  Status open_with(Origin origin);
  Status agree(const Exchange& exchange);
  // locate.cpp
  Status locate(const Options& options, const Exchange& exchange);
  Status lay_ground(const Options& options, const Exchange& exchange);
  Result<TuningTable> common_tuning(const Options& options, const Exchange& exchange);
  void close_at_exit();
  Status open_transports(const Exchange& exchange);
  Result<Link*> link_to(int peer, int channel);
  Question question_for(const Call& call) const;
  Result<CachedPlan*> make_plan(const Call& call, const PlanKey& key);
  bool in_use(const CachedPlan* cached) const;
  Program message_program(const Call& call, int channel) const;
  // communicator.cpp
  Result<CachedPlan*> plan_for(const Call& call, int channel);
  Status usable() const;
  Status check_pointers(const Call& call) const;
  Status run_inside(const Call& call);
  Result<RequestState*> start_inside(const Call& call, int channel);
  RequestState* new_request();
  bool progress();
  bool progress_messages();
  void complete(RequestState* request, Status result);
  void match_self();
  Status wait_inside(RequestState* request);
  /// A wait in its slow phase: failures, deadline, idle callback, sleep. `execution`: what is waited for.
  Status rest(Waiter& waiter, Execution* execution);
  void sleep_until_news(std::uint32_t ticket, const Execution* execution, std::int64_t nap_ns);
  /// The failure of an operation without progress for `stuck_ns` that waits for a rank which has left; ok if there is
  /// none.
  Status look_for_departed(Execution* execution, std::int64_t stuck_ns);
  bool has_left(const Link& link, std::int64_t stuck_ns) const;
  std::string departure_text(int peer) const;  // "rank 2 (host b, pid 7) has left the job"
  void serve_unopened();
  /// Makes the communicator unusable, here and on its other ranks, unless it is already: then with the first cause.
  Status fail_here(Error error);
  Status give_up(Error error);
  Error timed_out(const Execution* execution, std::int64_t waited_ns) const;
  std::string describe(int peer) const;
  void progress_thread_main();
  bool outstanding() const { return !collectives_.empty() || !messages_.empty(); }
  // split.cpp
  Status exchange_among(const std::vector<int>& ranks, int self, std::span<const std::byte> mine, std::span<std::byte> all);
  // check.cpp
  Status compare_arguments(const Call& call);

  std::shared_ptr<Job> job_;
  std::uint64_t id_ = 0;
  int rank_ = 0;
  std::vector<int> members_;
  CommunicatorConfig config_;
  ExecutorLimits limits_;
  WaitPolicy wait_policy_;
  std::int64_t spin_us_option_ = -1;
  YieldRecord yields_;
  Topology topology_;
  std::string structure_;  // of topology_, in words
  std::shared_ptr<Costs> costs_;
  std::vector<RankIdentity> identities_;
  std::size_t slot_bytes_ = 0;
  std::int64_t lanes_option_ = 0;
  bool share_registered_ = true;  // TAMAKI_REGISTER
  std::vector<std::vector<SizeRule>> rules_;  // by collective
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Transport*> active_transports_;  // whose progress() moves data
  std::vector<Link*> unopened_;                // while there are any, progress() of every transport is due
  Bell* bell_ = nullptr;
  bool bell_shared_ = false;
  bool several_bells_ = false;
  std::vector<int> wait_descriptors_;
  Bell private_bell_;

  Gate gate_;
  PlanCache plans_{512};
  CachedPlan* last_plan_ = nullptr;
  PlanKey probe_;  // scratch for lookups
  Workspace workspace_;
  Execution execution_;  // of blocking calls
  OpContext op_;
  std::vector<std::unique_ptr<RequestState>> requests_;
  std::vector<RequestState*> free_requests_;
  std::deque<RequestState*> collectives_;
  std::vector<RequestState*> messages_;
  std::deque<RequestState*> self_sends_, self_receives_;
  std::vector<std::uint32_t> send_busy_, receive_busy_;  // per rank: stamp of the progress round that blocked it
  std::uint32_t stamp_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t collective_calls_ = 0;  // equal on all ranks, unlike calls_, which counts messages too
  std::uint32_t generation_ = fork_generation();
  std::uint64_t splits_ = 0;
  std::map<void*, std::uint32_t> registrations_;  // handle -> pages shared for it (share_pages), or 0

  // look_for_departed
  std::int64_t next_look_ns_ = 0;
  const Link* departed_ = nullptr;      // whose peer was seen to have left,
  std::int64_t departed_since_ns_ = 0;  // and when

  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;  // guards failure_
  Failure failure_;

  std::thread progress_thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> work_{0};  // outstanding operations, for the progress thread
};

}  // namespace tamaki
