#include "communicator/bootstrap/rendezvous.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "communicator/bootstrap/node.hpp"

namespace tamaki::bootstrap {
namespace {

using namespace std::chrono_literals;
constexpr auto kUnused = 1h;        // an id that nobody uses
constexpr auto kAfterFailure = 30s; // for late ranks to hear of the failure

/// One connection a rank: raises this process' soft limit of descriptors where it would not do.
Status make_descriptors(int ranks) {
  constexpr rlim_t kForTheProgram = 512;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};  // then accepting says so
  const rlim_t needed = static_cast<rlim_t>(ranks) + kForTheProgram;
  if (ranks < 256 || limit.rlim_cur >= needed) return {};
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = needed;
  if (needed <= limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  return fail(Code::out_of_memory, "the rendezvous of " + std::to_string(ranks) + " ranks needs " + std::to_string(needed) +
                                       " descriptors; the limit of its process is " + std::to_string(before) +
                                       " (ulimit -n), " + std::to_string(limit.rlim_max) + " at most");
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(RendezvousConfig config) {
  std::unique_ptr<Rendezvous> rendezvous(new Rendezvous(std::move(config)));
  Result<std::unique_ptr<Endpoint>> endpoint = Endpoint::open(*rendezvous);
  if (!endpoint) return pass(std::move(endpoint));
  rendezvous->endpoint_ = std::move(*endpoint);
  RendezvousConfig& own = rendezvous->config_;
  rendezvous->addresses_ = addresses_of(own.listeners);
  for (Listener& listener : own.listeners)
    if (Status status = rendezvous->endpoint_->listen(std::move(listener), rendezvous_secret(own.secret, own.label)); !status)
      return pass(std::move(status));
  own.listeners.clear();
  rendezvous->endpoint_->set_timer(Clock::now() + kUnused);
  Rendezvous* self = rendezvous.get();
  if (Status status = self->thread_.start("tmk-rendezvous",
                                          [self] {
                                            self->endpoint_->run();
                                            const std::lock_guard lock(self->endpoint_mutex_);
                                            self->endpoint_.reset();  // the listeners go with the last rank
                                            self->finished_.store(true, std::memory_order_release);
                                          });
      !status)
    return pass(std::move(status));
  return rendezvous;
}

Rendezvous::~Rendezvous() {
  if (thread_.in_owner_process()) {
    stop_.store(true, std::memory_order_release);  // pairs with on_wake()
    const std::lock_guard lock(endpoint_mutex_);
    if (endpoint_ != nullptr) endpoint_->wake();
  }
  thread_.join();
  wipe(config_.secret);
}

void Rendezvous::on_wake() {
  if (stop_.load(std::memory_order_acquire)) endpoint_->quit();  // pairs with the destructor
}

void Rendezvous::on_frame(Endpoint::Id id, std::uint32_t type, std::span<const std::byte> payload) {
  switch (static_cast<FrameType>(type)) {
    case FrameType::enter: enter(id, payload); break;
    case FrameType::joined:
      if (const auto it = rank_of_.find(id); it != rank_of_.end()) {
        Member& member = members_[static_cast<std::size_t>(it->second)];
        if (!member.joined) ++joined_;
        member.joined = true;
      }
      endpoint_->finish(id);
      break;
    case FrameType::failure: {
      Announcement news;
      if (decode_failure(payload, &news)) fail_all(news);
      break;
    }
    default: break;
  }
}

void Rendezvous::enter(Endpoint::Id id, std::span<const std::byte> payload) {
  Reader reader(payload);
  const int rank = reader.get<std::int32_t>(), ranks = reader.get<std::int32_t>();
  const int timeout_ms = reader.get<std::int32_t>(), left_ms = reader.get<std::int32_t>();
  const bool holds = reader.get<std::uint8_t>() != 0;
  const AddressSet addresses = AddressSet::decode(reader.get_bytes(AddressSet::kBytes));
  if (!reader.ok() || ranks < 1 || rank < 0 || rank >= ranks) return endpoint_->close(id);
  if (failed_) return tell_failure(id);
  if (members_.empty()) {
    members_.resize(static_cast<std::size_t>(ranks));
    if (Status status = make_descriptors(ranks); !status) {
      fail_all({random_number(), 0, {status.error().code, rank, status.error().message}});
      return tell_failure(id);
    }
  }
  const auto refuse = [&](std::string message) {
    fail_all({random_number(), 0, {Code::mismatch, rank, std::move(message)}});
    tell_failure(id);
  };
  if (static_cast<std::size_t>(ranks) != members_.size())
    return refuse("rank " + std::to_string(rank) + " says that the job has " + std::to_string(ranks) +
                  " ranks, another says " + std::to_string(members_.size()));
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (member.id != 0)
    return refuse("two processes say that they are rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                  ": one at " + member.addresses.text() + ", one at " + addresses.text());
  member.id = id;
  member.addresses = addresses;
  rank_of_[id] = rank;
  const Deadline deadline = left_ms < 0 ? Deadline::max() : deadline_in(left_ms - margin_ms(timeout_ms));
  if (entered_ == 0 || deadline < deadline_) {
    deadline_ = deadline;
    timeout_ms_ = timeout_ms;
    endpoint_->set_timer(deadline_);
  }
  ++entered_;
  const bool news = holds && holder_ < 0;
  if (news) holder_ = rank;
  Writer welcome;
  welcome.put(std::int32_t{holder_});
  for (const Member& other : members_)
    if (other.id == id || (news && other.id != 0))
      endpoint_->send(other.id, static_cast<std::uint32_t>(FrameType::welcome), welcome.bytes());
  if (entered_ == ranks) all_entered();
}

void Rendezvous::all_entered() {
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const auto parent = static_cast<std::size_t>(r == 0 ? 0 : parent_of(static_cast<int>(r)));
    endpoint_->send(members_[r].id, static_cast<std::uint32_t>(FrameType::parent), members_[parent].addresses.encode());
  }
}

void Rendezvous::on_closed(Endpoint::Id id, const Error& why) {
  const auto it = rank_of_.find(id);
  if (it == rank_of_.end()) return;
  const int rank = it->second;
  rank_of_.erase(it);
  if (!members_[static_cast<std::size_t>(rank)].joined && !failed_)
    fail_all({random_number(), 0,
              {Code::peer_lost, rank, "rank " + std::to_string(rank) + " was lost while the job started (" + why.message + ")"}});
  settle();
}

void Rendezvous::tell_failure(Endpoint::Id id) {
  endpoint_->send(id, static_cast<std::uint32_t>(FrameType::failure), encode_failure(*failed_));
  ++told_;
  settle();
}

void Rendezvous::fail_all(const Announcement& news) {
  if (failed_) return;
  failed_ = news;
  for (const auto& [id, rank] : rank_of_)
    if (!members_[static_cast<std::size_t>(rank)].joined)
      endpoint_->send(id, static_cast<std::uint32_t>(FrameType::failure), encode_failure(news));
  told_ = entered_;
  endpoint_->set_timer(Clock::now() + kAfterFailure);
  settle();
}

/// Ends when there is nobody left to serve: all through, or all told and gone.
void Rendezvous::settle() {
  if (!rank_of_.empty()) return;
  const int ranks = static_cast<int>(members_.size());
  if (joined_ == ranks || (failed_ && told_ >= ranks)) endpoint_->quit();
}

void Rendezvous::on_timer() {
  if (failed_ || entered_ == 0) return endpoint_->quit();
  if (entered_ == static_cast<int>(members_.size())) return;  // the root keeps the deadline from here on
  std::vector<int> absent;
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (members_[r].id == 0) absent.push_back(static_cast<int>(r));
  fail_all({random_number(), 0,
            {Code::timeout, absent[0], ranks_text(absent) + " did not arrive within " + duration_text(timeout_ms_)}});
}

// ---- Those of this process --------------------------------------------------------------------------------------

namespace {

/// The id of a job outlives the call that made it, so somebody has to own its rendezvous: this, until it ends.
struct Hosted {
  std::mutex mutex;
  std::vector<std::unique_ptr<Rendezvous>> all;
};
Hosted& hosted() {
  static Hosted& instance = *new Hosted;  // outlives communicators that the program keeps until its very end
  // Threads must have ended before the library's code goes away. A forked child leaves the parent's alone.
  static const struct AtExit {
    ~AtExit() {
      for (auto& one : instance.all)
        if (!one->in_owner_process()) static_cast<void>(one.release());
      instance.all.clear();
    }
  } at_exit;
  return instance;
}

}  // namespace

Result<AddressSet> host_rendezvous(RendezvousConfig config) {
  forget_ended_rendezvous();
  Result<std::unique_ptr<Rendezvous>> opened = Rendezvous::open(std::move(config));
  if (!opened) return pass(std::move(opened));
  const AddressSet addresses = (*opened)->addresses();
  const std::lock_guard lock(hosted().mutex);
  hosted().all.push_back(std::move(*opened));
  return addresses;
}

bool hosts_rendezvous(const Secret& secret) {
  const std::lock_guard lock(hosted().mutex);
  return std::ranges::any_of(hosted().all,
                             [&](const auto& one) { return one->in_owner_process() && one->secret() == secret; });
}

void drain_rendezvous(const Secret& secret, Deadline deadline) {
  const auto busy = [&] {
    const std::lock_guard lock(hosted().mutex);
    return std::ranges::any_of(hosted().all, [&](const auto& one) {
      return one->in_owner_process() && one->secret() == secret && !one->finished();
    });
  };
  while (busy() && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
}

void forget_ended_rendezvous() {
  std::vector<std::unique_ptr<Rendezvous>> ended;
  const std::lock_guard lock(hosted().mutex);
  for (auto& one : hosted().all)
    if (one->finished()) ended.push_back(std::move(one));
  std::erase(hosted().all, nullptr);
}

}  // namespace tamaki::bootstrap
