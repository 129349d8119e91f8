#pragma once
// One rank's place in the control tree: the implementation of Control.
//
// Start: (rendezvous, if any: enter, get the parent's addresses) -> dial the parent -> hello -> every rank's arrival
// travels up -> the root, having all, sends `ready` down. A rank that dies, fails or stays away meanwhile ends the start
// of all others with an error that names it.
//
// Afterwards: exchanges travel up rank by rank and down as one; news of failures flood the tree, each passed on once.
// When a parent leaves or dies, its children attach to the next of their kin (ancestors, then the root's first
// children), always of a lower rank than their own, so no cycle can arise; the two ends of a new link tell each other all
// failures they know of, so none is lost in between.
//
// Departures (who has destroyed which communicator, who has left the job) flood the tree likewise, some at a time. A
// rank that leaves must not take with it what only it has heard, its own departure included, while its neighbours may
// be leaving too: it says goodbye on all links and goes on passing on what comes. Neighbours that stay answer farewell;
// of those that leave as well it awaits the end of the stream. It ends its own stream to a neighbour when all others
// have answered in one of these ways (where a whole tree leaves, that goes from the leaves to the root and back). One
// without a parent to whom nobody has said farewell goes to its kin, one by one, until somebody does. All within
// kLinger. Where all of its kin have gone too, a rank is alone in a tree with those that attached to it.
//
// Threads: the service thread (tmk-control) owns everything marked "service"; the caller's threads meet it at mutex_.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "communicator/bootstrap/departures.hpp"
#include "communicator/bootstrap/endpoint.hpp"
#include "communicator/bootstrap/protocol.hpp"
#include "communicator/bootstrap/service.hpp"
#include "communicator/control.hpp"

namespace tamaki::bootstrap {

struct NodeConfig {
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  int timeout_ms = 30000;
  Deadline deadline = Deadline::max();  // of the start
  std::vector<Listener> listeners;      // none needed with one rank
  AddressSet rendezvous;                // empty: `parent` is known already
  std::string rendezvous_label;         // tells successive rendezvous at one address apart
  int rendezvous_holder = -1;           // rank whose process listens there; -1: not known
  bool holds_rendezvous = false;        // this process does
  AddressSet parent;                    // with no rendezvous, ranks > 0
};

/// Secrets of the two kinds of connections, derived from the job's.
Secret rendezvous_secret(const Secret& job, const std::string& label);
Secret tree_secret(const Secret& job);

/// When a deadline has passed without a word from whoever knows the reason: time for it still to come. On a machine
/// that stalled, everybody's deadline passes at once, and the reason would lose the race.
inline constexpr std::chrono::milliseconds kLastChance{300};

class Node final : public Control, private Endpoint::Handler {
 public:
  /// Joins; blocks until all ranks have, or fails by the deadline with an error that names a rank.
  static Result<std::unique_ptr<Control>> join(NodeConfig config);
  ~Node() override;
  void depart() override;

  int rank() const override { return config_.rank; }
  int ranks() const override { return config_.ranks; }
  std::span<const std::byte> secret() const override { return config_.secret; }
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void announce(std::uint64_t communicator, const Failure& failure) override;
  void leave(std::uint64_t communicator) override;
  Presence presence(std::uint64_t communicator, int rank) const override;
  void listen(std::function<void(std::uint64_t, const Failure&)> listener) override;
  std::string describe(int rank) const override;
  void set_identities(std::span<const RankIdentity> identities) override;

 private:
  enum class Phase { joining, ready, failed };
  struct Peer {  // a link of the tree
    int rank = -1;          // -1: not known
    bool hello = false;     // has said so
    bool left = false;      // has said goodbye
    bool farewell = false;  // has answered ours
  };
  struct Collection {  // of one exchange, at the root
    std::size_t bytes = 0;
    int first_rank = 0;  // that gave `bytes`
    std::vector<std::byte> all;
    std::vector<bool> here;
    int arrived = 0;
    Deadline deadline;
  };
  struct Exchange {  // the caller's, while it waits
    std::uint64_t number = 0;
    std::span<const std::byte> mine;
    std::span<std::byte> all;
    bool sent = false;
    bool done = false;
    Status status;
  };

  explicit Node(NodeConfig config) : config_(std::move(config)) {}
  Status start();
  Status wait_ready();

  // Service.
  void serve();
  void on_open(Endpoint::Id id) override;
  void on_frame(Endpoint::Id id, std::uint32_t type, std::span<const std::byte> payload) override;
  void on_closed(Endpoint::Id id, const Error& why) override;
  void on_dial_failed(Endpoint::Id id, const Error& why) override;
  void on_wake() override;
  void on_timer() override;
  void on_process_end(Endpoint::Id id) override;
  void rendezvous_frame(FrameType type, std::span<const std::byte> payload);
  void begin_tree();
  void say_hello(Endpoint::Id id);
  void take_hello(Endpoint::Id id, std::span<const std::byte> payload);
  void take_ready(std::span<const std::byte> payload);
  void become_ready();
  void contribute(std::uint64_t exchange, int rank, std::span<const std::byte> data);
  void collect(std::uint64_t exchange, int rank, std::span<const std::byte> data);
  void collection_late(std::uint64_t exchange);
  void take_result(std::span<const std::byte> payload);
  void send_down(FrameType type, std::span<const std::byte> payload);
  void spread(const Announcement& news, Endpoint::Id source);
  void fail_all(Code code, int rank, std::string message);
  void lost(int rank, const std::string& how);
  void note_departure(const Departure& departure, Endpoint::Id source);
  void pass_on_departures();
  void tell_all_known(Endpoint::Id id);
  void parent_gone();
  void attach_to_kin();
  void say_goodbye();
  void finish_links();
  bool visit_kin();
  bool leaving() const { return linger_until_ != Deadline::max(); }
  bool dialling() const { return parent_ != 0 && !peers_.contains(parent_); }
  void schedule();
  void deliver();
  bool is_root() const { return root_; }
  std::vector<int> missing(const Collection& collection) const;

  NodeConfig config_;
  AddressSet own_addresses_;
  RankIdentity self_;

  // ---- service ----
  std::unique_ptr<Endpoint> endpoint_;
  Endpoint::Id rendezvous_ = 0;
  Endpoint::Id parent_ = 0;        // dialer or link
  std::atomic<int> parent_rank_{-1};  // read by callers for their messages only
  bool parent_attached_ = false;
  bool root_ = false;
  bool entered_ = false;
  bool rendezvous_done_ = false;
  std::unordered_map<Endpoint::Id, Peer> peers_;
  std::vector<std::pair<int, AddressSet>> children_addresses_;  // of the root's children, for `ready`
  std::vector<Kin> kin_;
  std::size_t next_kin_ = 0;
  std::optional<Deadline> last_chance_;  // of a start whose deadline has passed
  Deadline attach_at_ = Deadline::max();
  Deadline linger_until_ = Deadline::max();
  bool told_ = false;           // somebody who stays, or the parent, has taken this rank's goodbye
  std::size_t next_visit_ = 0;  // among the kin
  std::vector<std::vector<std::byte>> waiting_up_;  // gather frames until the parent is there
  std::map<std::uint64_t, Collection> collections_;
  std::unordered_set<std::uint64_t> seen_;          // announcements
  std::deque<Announcement> known_;                  // told to new links; newest last, bounded
  std::vector<std::pair<Departure, Endpoint::Id>> due_;  // departures to be passed on, and where each came from
  Deadline due_at_ = Deadline::max();

  // ---- shared, guarded by mutex_ ----
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::joining;
  std::optional<Failure> failure_;  // of the whole job
  std::vector<Announcement> outbox_;
  std::vector<std::uint64_t> leaves_;  // communicators, to be told
  Departures departures_;
  Exchange* exchange_ = nullptr;
  bool leaving_ = false;
  std::vector<RankIdentity> identities_;

  std::mutex exchange_mutex_;  // one exchange at a time
  std::uint64_t exchanges_ = 0;

  std::mutex listener_mutex_;  // held while the listener runs
  std::function<void(std::uint64_t, const Failure&)> listener_;
  std::deque<std::pair<std::uint64_t, Failure>> undelivered_;

  ServiceThread thread_;  // last: ends first
};

}  // namespace tamaki::bootstrap
