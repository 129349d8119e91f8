// Waiting without progress, looking for ranks that have left, and failing.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "communicator/communicator_impl.hpp"

namespace tamaki {
namespace {

// Looking for ranks that have left (look_for_departed), in ns without progress: when to begin, how often; what the news
// of a departure may be ahead of messages that are under way within this machine; how long it may be behind the end of
// the peer's connection. Reads: a transport needs some until it has seen everything that lies in its sockets.
constexpr std::int64_t kFirstLookNs = 20'000'000;
constexpr std::int64_t kBetweenLooksNs = 10'000'000;
constexpr std::int64_t kAfterDepartureNs = 100'000'000;
constexpr std::int64_t kWithoutWordNs = 1'000'000'000;
constexpr int kReadsAfterDeparture = 64;

}  // namespace

std::string CommunicatorImpl::describe(int peer) const { return job_->control().describe(members_[static_cast<std::size_t>(peer)]); }

Error CommunicatorImpl::timed_out(const Execution* execution, std::int64_t waited_ns) const {
  std::string text = (config_.name.empty() ? "" : config_.name + ": ") + "no progress for " + std::to_string(waited_ns / 1'000'000) +
                     " ms (deadline " + std::to_string(config_.timeout_ms) + " ms)";
  if (execution != nullptr) {
    const Execution::Missing missing = execution->missing();
    text += " in call " + std::to_string(calls_) + ", " + execution->plan()->title + ", waiting for " + execution->text_of(missing);
    if (missing.link != nullptr) text += "; it is " + describe(missing.link->peer);
  } else {
    text += " waiting for the other half of a message of rank " + std::to_string(rank_) + " to itself";
  }
  return {Code::timeout, Scope::communicator, std::move(text)};
}

/// Links that wait for their peers' ends; no work once all are open.
void CommunicatorImpl::serve_unopened() {
  if (unopened_.empty()) return;
  for (auto& transport : transports_)
    if (Status status = transport->progress(); !status) (void)fail_here(std::move(status.error()));
  std::erase_if(unopened_, [](const Link* link) { return link->open; });
}

/// Nothing but what lies here already can come over the link.
bool CommunicatorImpl::has_left(const Link& link, std::int64_t stuck_ns) const {
  const LinkEnd end = link.transport->end_of(link);
  if (end == LinkEnd::here) return false;
  // Also where the transport knows, the control plane's word is awaited: the reason why the peer left comes before it.
  if (end == LinkEnd::left && stuck_ns > kWithoutWordNs) return true;
  return job_->control().presence(id_, members_[static_cast<std::size_t>(link.peer)]) != Presence::here;
}

Status CommunicatorImpl::look_for_departed(Execution* execution, std::int64_t stuck_ns) {
  if (execution == nullptr || stuck_ns < kFirstLookNs) return {};
  const std::int64_t now = now_ns();
  if (now < next_look_ns_) return {};
  next_look_ns_ = now + kBetweenLooksNs;
  const Link* found = execution->missing([&](const Link& link) { return has_left(link, stuck_ns); }).link;
  if (found == nullptr) return {};
  if (departed_ != found) {
    departed_ = found;
    departed_since_ns_ = now;
  }
  if (now - departed_since_ns_ < kAfterDepartureNs) return {};
  // It may have left right after its last message, which is here by now: look again, after its departure was seen.
  for (int i = 0; i < kReadsAfterDeparture; ++i)
    for (auto& transport : transports_)
      if (Status moved = transport->progress(); !moved) return fail_here(std::move(moved.error()));
  if (execution->can_move()) return {};
  const Execution::Missing missing = execution->missing([found](const Link& link) { return &link == found; });
  if (missing.link == nullptr) return {};
  return give_up({Code::peer_lost, Scope::communicator,
                  (config_.name.empty() ? "" : config_.name + ": ") + departure_text(found->peer) + " while this rank waits, in call " +
                      std::to_string(calls_) + ", " + execution->plan()->title + ", for " + execution->text_of(missing)});
}

std::string CommunicatorImpl::departure_text(int peer) const {
  const Presence presence = job_->control().presence(id_, members_[static_cast<std::size_t>(peer)]);
  return describe(peer) + (presence == Presence::left_job ? " has left the job" : " has destroyed its communicator");
}

Status CommunicatorImpl::rest(Waiter& waiter, Execution* execution) {
  // Data that has arrived counts more than news of a failure: a rank may end orderly after its last message.
  if (failed_.load(std::memory_order_acquire)) {
    if (execution == &execution_ && execution_.advance() == Progress::moved) return {};
    return health();
  }
  serve_unopened();
  const bool sleep = waiter.slow_round();
  const std::int64_t waited = waiter.waited_ns();
  if (waited > std::int64_t{config_.timeout_ms} * 1'000'000) return fail_here(timed_out(execution, waited));
  if (Status there = look_for_departed(execution, waited); !there) return there;
  if (config_.on_idle != nullptr) config_.on_idle(config_.idle_context);
  if (!sleep) return {};
  std::uint32_t ticket = 0;
  if (bell_ != nullptr) ticket = prepare_sleep(*bell_);
  // One more look between the announcement and the sleep, so that no ring is missed.
  bool news = failed_.load(std::memory_order_acquire);
  if (!news && execution == &execution_) {
    news = execution_.can_move();
  } else if (!news) {
    news = progress();
  }
  if (!news) {
    std::int64_t nap = std::min(wait_policy_.sleep_ns, std::int64_t{config_.timeout_ms} * 1'000'000 - waited + 1'000'000);
    if (config_.on_idle != nullptr || !unopened_.empty()) nap = std::min<std::int64_t>(nap, 1'000'000);
    if (several_bells_) nap = std::min<std::int64_t>(nap, 200'000);
    sleep_until_news(ticket, execution, nap);
  }
  if (bell_ != nullptr) end_sleep(*bell_);
  return {};
}

/// A futex cannot be polled together with descriptors. A blocking call waits for one kind of link at a time as a rule
/// (ranks of the host first, then others), and then sleeps on what that kind wakes by.
void CommunicatorImpl::sleep_until_news(std::uint32_t ticket, const Execution* execution, std::int64_t nap_ns) {
  static const std::vector<int> none;
  if (bell_ != nullptr && !wait_descriptors_.empty() && execution == &execution_ && !outstanding()) {
    const bool bell = execution->missing([](const Link& link) { return !link.needs_flush; }).link != nullptr;
    const bool wire = execution->missing([](const Link& link) { return link.needs_flush; }).link != nullptr;
    // What is still to be sent by descriptors does not wait for longer than a short nap.
    constexpr std::int64_t kShort = 1'000'000;
    if (bell && !wire) return sleep_for_news(bell_, ticket, bell_shared_, none, std::min(nap_ns, kShort));
    if (wire && !bell) return sleep_for_news(nullptr, ticket, bell_shared_, wait_descriptors_, nap_ns);
  }
  sleep_for_news(bell_, ticket, bell_shared_, wait_descriptors_, nap_ns);
}

Status CommunicatorImpl::fail_here(Error error) {
  // Errors of a request leave the communicator as it is.
  if (error.scope == Scope::request) return tl::unexpected<Error>(std::move(error));
  // A broken connection may be the echo of another rank's end: its survivors close theirs. The control plane hears of
  // the death itself, at about the same time; its word goes first. The same holds where the other rank has left.
  if (error.code == Code::peer_lost) {
    for (int i = 0; i < 100 && !failed_.load(std::memory_order_acquire); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (int peer = 0; peer < ranks(); ++peer)
      if (peer != rank_ && job_->control().presence(id_, members_[static_cast<std::size_t>(peer)]) != Presence::here) {
        error.message = departure_text(peer) + "; " + error.message;
        break;
      }
  }
  return give_up(std::move(error));
}

Status CommunicatorImpl::give_up(Error error) {
  bool first = false;
  Failure failure{error.code, -1, error.message};
  {
    const std::lock_guard lock(failure_mutex_);
    first = !failed_.load(std::memory_order_relaxed);
    if (first) failure_ = failure;
    failed_.store(true, std::memory_order_release);
  }
  if (!first) return health();
  failure.message = "rank " + std::to_string(rank_) + " gave up: " + failure.message;
  if (failure.code == Code::peer_lost || failure.code == Code::timeout || failure.code == Code::mismatch || failure.code == Code::aborted)
    job_->control().announce(id_, failure);
  else
    job_->control().announce(id_, {Code::peer_lost, members_[static_cast<std::size_t>(rank_)], failure.message});
  return tl::unexpected<Error>(std::move(error));
}

void CommunicatorImpl::abort(const Failure& why) {
  (void)fail_here({why.code, Scope::communicator, why.message});
  if (bell_ != nullptr) ring_bell(*bell_, bell_shared_);
}

Status CommunicatorImpl::health() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(failure_mutex_);
  return tamaki::fail(failure_.code, failure_.message, Scope::communicator);
}

}  // namespace tamaki
