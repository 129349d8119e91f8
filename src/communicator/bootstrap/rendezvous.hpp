#pragma once
// Where the ranks of a starting job meet: a thread of one of them (or of a launcher) that listens, takes down every
// rank's addresses, and, when all have entered, tells each its parent's. It keeps every rank's connection until that
// rank's start is complete, so that a rank that dies, gives up or stays away ends the start of all others at once, with
// its name. State: one entry a rank. It ends when all are through, or after a failure when it has told everybody.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator/bootstrap/endpoint.hpp"
#include "communicator/bootstrap/protocol.hpp"
#include "communicator/bootstrap/service.hpp"

namespace tamaki::bootstrap {

struct RendezvousConfig {
  Secret secret{};    // of the job
  std::string label;  // see NodeConfig::rendezvous_label
  std::vector<Listener> listeners;
  int holder = -1;    // rank of this process, where known
};

class Rendezvous final : private Endpoint::Handler {
 public:
  static Result<std::unique_ptr<Rendezvous>> open(RendezvousConfig config);
  ~Rendezvous() override;
  AddressSet addresses() const { return addresses_; }
  const Secret& secret() const { return config_.secret; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// After a fork the thread is the parent's.
  bool in_owner_process() const { return thread_.in_owner_process(); }

 private:
  struct Member {
    Endpoint::Id id = 0;
    AddressSet addresses;
    bool joined = false;
  };
  explicit Rendezvous(RendezvousConfig config) : config_(std::move(config)), holder_(config_.holder) {}
  void on_open(Endpoint::Id) override {}
  void on_frame(Endpoint::Id id, std::uint32_t type, std::span<const std::byte> payload) override;
  void on_closed(Endpoint::Id id, const Error& why) override;
  void on_dial_failed(Endpoint::Id, const Error&) override {}
  void on_wake() override;
  void on_timer() override;
  void on_process_end(Endpoint::Id) override {}
  void enter(Endpoint::Id id, std::span<const std::byte> payload);
  void all_entered();
  void fail_all(const Announcement& news);
  void tell_failure(Endpoint::Id id);
  void settle();

  RendezvousConfig config_;
  AddressSet addresses_;
  std::mutex endpoint_mutex_;    // its thread resets it, the destructor wakes it
  std::unique_ptr<Endpoint> endpoint_;
  std::unordered_map<Endpoint::Id, int> rank_of_;
  std::vector<Member> members_;  // sized by the first rank that enters
  int holder_ = -1;
  int entered_ = 0;
  int joined_ = 0;
  int told_ = 0;                 // ranks that know of the failure
  int timeout_ms_ = 0;           // of whoever's deadline is the first
  Deadline deadline_ = Deadline::max();
  std::optional<Announcement> failed_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> finished_{false};
  ServiceThread thread_;         // last: ends first
};

/// Starts a rendezvous that this process owns until it ends by itself.
Result<AddressSet> host_rendezvous(RendezvousConfig config);
/// This process owns the rendezvous of the job with this secret.
bool hosts_rendezvous(const Secret& secret);
/// After a failed start: gives ranks that have yet to come until `deadline` to hear why, since this process may end as
/// soon as it hears of the failure itself.
void drain_rendezvous(const Secret& secret, Deadline deadline);
/// Frees what is left of rendezvous that have ended.
void forget_ended_rendezvous();

}  // namespace tamaki::bootstrap
