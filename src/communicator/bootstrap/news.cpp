// A node's exchanges (up rank by rank, down as one) and the news of failures.

#include <algorithm>
#include <cstring>
#include <utility>

#include "communicator/bootstrap/node.hpp"

namespace tamaki::bootstrap {
namespace {

constexpr std::size_t kKnownAtMost = 256;      // announcements kept for ranks that attach anew
constexpr std::size_t kSeenAtMost = 1 << 16;
constexpr std::chrono::milliseconds kGathering{20};  // departures wait so long for others, to travel together

/// The same number wherever a death is noticed, so that it is passed on once, whoever saw it first.
std::uint64_t death_id(int rank) { return 0xdead000000000000ull | static_cast<std::uint32_t>(rank); }

}  // namespace

// ---- Exchanges --------------------------------------------------------------------------------------------------

Status Node::allgather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(config_.ranks))
    return fail(Code::invalid_argument, "exchange of " + std::to_string(mine.size()) + " bytes a rank between " +
                                            std::to_string(config_.ranks) + " ranks into " + std::to_string(all.size()) +
                                            " bytes");
  if (config_.ranks == 1) {
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    return {};
  }
  if (all.size() > Endpoint::kMostPayload - 64)
    return fail(Code::invalid_argument, "exchange of " + std::to_string(all.size()) + " bytes, more than " +
                                            std::to_string(Endpoint::kMostPayload - 64));
  const std::lock_guard one_at_a_time(exchange_mutex_);
  Exchange exchange;
  exchange.number = ++exchanges_;
  exchange.mine = mine;
  exchange.all = all;
  const Deadline deadline = deadline_in(config_.timeout_ms);
  std::unique_lock lock(mutex_);
  if (failure_) return fail(failure_->code, failure_->message, Scope::communicator);
  if (leaving_) return fail(Code::invalid_usage, "this rank has left the job", Scope::communicator);
  exchange_ = &exchange;
  endpoint_->wake();
  const auto settled = [&] { return exchange.done || failure_.has_value(); };
  static_cast<void>(changed_.wait_until(lock, deadline, settled) || changed_.wait_for(lock, kLastChance, settled));
  exchange_ = nullptr;
  if (exchange.done) return exchange.status;
  if (failure_) return fail(failure_->code, failure_->message, Scope::communicator);
  // Whoever is closer to the root names the rank that is missing; this is for those that its word does not reach.
  const int through = parent_rank_.load(std::memory_order_relaxed);
  return fail(Code::timeout,
              "exchange " + std::to_string(exchange.number) + " did not end within " + duration_text(config_.timeout_ms) +
                  (through >= 0 ? " (no word through rank " + std::to_string(through) + ")" : std::string()),
              Scope::communicator);
}

/// A rank's part of an exchange on its way to the root.
void Node::contribute(std::uint64_t exchange, int rank, std::span<const std::byte> data) {
  if (root_) return collect(exchange, rank, data);
  Writer up;
  up.put(exchange).put(static_cast<std::uint32_t>(rank)).put_bytes(data);
  if (parent_attached_)
    endpoint_->send(parent_, static_cast<std::uint32_t>(FrameType::gather), up.bytes());
  else
    waiting_up_.emplace_back(up.bytes().begin(), up.bytes().end());
}

void Node::collect(std::uint64_t exchange, int rank, std::span<const std::byte> data) {
  const auto [it, fresh] = collections_.try_emplace(exchange);
  Collection& collection = it->second;
  const auto ranks = static_cast<std::size_t>(config_.ranks);
  if (fresh) {
    collection.bytes = data.size();
    collection.first_rank = rank;
    if (data.size() * ranks > Endpoint::kMostPayload) return;  // refused by allgather() on every rank
    collection.all.resize(data.size() * ranks);
    collection.here.resize(ranks);
    const auto whole = exchange == 0 ? config_.deadline : deadline_in(config_.timeout_ms);
    collection.deadline =
        whole == Deadline::max() ? whole : whole - std::chrono::milliseconds(margin_ms(config_.timeout_ms));
  }
  if (data.size() != collection.bytes) {
    const std::string message = "rank " + std::to_string(rank) + " gives " + std::to_string(data.size()) +
                                " bytes to exchange " + std::to_string(exchange) + ", rank " +
                                std::to_string(collection.first_rank) + " gives " + std::to_string(collection.bytes);
    collections_.erase(it);
    return fail_all(Code::mismatch, rank, message);
  }
  const auto at = static_cast<std::size_t>(rank);
  if (collection.here[at]) return;
  collection.here[at] = true;
  if (!data.empty()) std::memcpy(collection.all.data() + at * data.size(), data.data(), data.size());
  if (++collection.arrived != config_.ranks) return;
  const std::vector<std::byte> all = std::move(collection.all);
  collections_.erase(it);
  if (exchange == 0) return become_ready();
  Writer result;
  result.put(exchange).put_bytes(all);
  take_result(result.bytes());
}

void Node::take_result(std::span<const std::byte> payload) {
  send_down(FrameType::result, payload);
  Reader reader(payload);
  const auto number = reader.get<std::uint64_t>();
  const std::lock_guard lock(mutex_);
  if (exchange_ == nullptr || exchange_->number != number) return;
  if (reader.rest().size() == exchange_->all.size())
    std::copy(reader.rest().begin(), reader.rest().end(), exchange_->all.begin());
  else
    exchange_->status = fail(Code::internal, "exchange " + std::to_string(number) + " brought " +
                                                 std::to_string(reader.rest().size()) + " bytes, not " +
                                                 std::to_string(exchange_->all.size()));
  exchange_->done = true;
  changed_.notify_all();
}

void Node::send_down(FrameType type, std::span<const std::byte> payload) {
  for (const auto& [id, peer] : peers_)
    if (id != parent_ && peer.rank >= 0 && !peer.left) endpoint_->send(id, static_cast<std::uint32_t>(type), payload);
}

/// The topmost ranks that have not arrived: what hangs below a missing rank cannot have got through.
std::vector<int> Node::missing(const Collection& collection) const {
  std::vector<int> ranks;
  for (int r = 0; r < config_.ranks; ++r)
    if (!collection.here[static_cast<std::size_t>(r)] &&
        (r == 0 || collection.here[static_cast<std::size_t>(parent_of(r))]))
      ranks.push_back(r);
  return ranks;
}

void Node::collection_late(std::uint64_t exchange) {
  const auto it = collections_.find(exchange);
  const std::vector<int> absent = missing(it->second);
  collections_.erase(it);
  if (absent.empty()) return;
  const std::string what = exchange == 0 ? " did not arrive" : " did not take part in exchange " + std::to_string(exchange);
  fail_all(Code::timeout, absent[0], ranks_text(absent) + what + " within " + duration_text(config_.timeout_ms));
}

// ---- News -------------------------------------------------------------------------------------------------------

void Node::announce(std::uint64_t communicator, const Failure& failure) {
  if (endpoint_ == nullptr) return;  // nobody else
  {
    const std::lock_guard lock(mutex_);
    outbox_.push_back({random_number(), communicator, failure});
    if (communicator == 0 && !failure_) failure_ = failure;
    changed_.notify_all();
  }
  endpoint_->wake();
}

/// Passes news on to all neighbours but the one it came from, once. `source` 0: from this rank's own host program.
void Node::spread(const Announcement& news, Endpoint::Id source) {
  if (seen_.size() >= kSeenAtMost) seen_.clear();  // then an old one might go round once more, no further
  if (!seen_.insert(news.id).second) return;
  known_.push_back(news);
  if (known_.size() > kKnownAtMost) known_.pop_front();
  const std::vector<std::byte> frame = encode_failure(news);
  for (const auto& [id, peer] : peers_)  // also to those that have said goodbye: they pass on what they can
    if (id != source) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::failure), frame);
  // While the job starts, ranks that have no link of the tree yet hear of it through the rendezvous.
  if (rendezvous_ != 0 && rendezvous_ != source && !rendezvous_done_)
    endpoint_->send(rendezvous_, static_cast<std::uint32_t>(FrameType::failure), frame);
  if (news.communicator == 0) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = news.failure;
    if (phase_ == Phase::joining) phase_ = Phase::failed;
    changed_.notify_all();
  }
  if (source != 0) {
    const std::lock_guard lock(listener_mutex_);
    undelivered_.emplace_back(news.communicator, news.failure);
    if (undelivered_.size() > kKnownAtMost) undelivered_.pop_front();
  }
  deliver();
}

void Node::deliver() {
  const std::lock_guard lock(listener_mutex_);
  while (listener_ && !undelivered_.empty()) {
    const auto [communicator, failure] = std::move(undelivered_.front());
    undelivered_.pop_front();
    listener_(communicator, failure);
  }
}

/// A failure of the whole job that this node is the first to know of.
void Node::fail_all(Code code, int rank, std::string message) {
  spread({random_number(), 0, {code, rank, std::move(message)}}, ~Endpoint::Id{0});
}

void Node::lost(int rank, const std::string& how) {
  bool joining;
  {
    const std::lock_guard lock(mutex_);
    joining = phase_ == Phase::joining;
  }
  const std::string message = describe(rank) + " was lost" + (joining ? " while the job started" : "") + " (" + how + ")";
  spread({death_id(rank), 0, {Code::peer_lost, rank, message}}, ~Endpoint::Id{0});
}

// ---- Departures -------------------------------------------------------------------------------------------------

void Node::leave(std::uint64_t communicator) {
  if (endpoint_ == nullptr) return;  // nobody else
  {
    const std::lock_guard lock(mutex_);
    leaves_.push_back(communicator);
  }
  endpoint_->wake();
}

Presence Node::presence(std::uint64_t communicator, int rank) const {
  const std::lock_guard lock(mutex_);
  if (departures_.contains({communicator, rank})) return Presence::left_communicator;
  return departures_.contains({0, rank}) ? Presence::left_job : Presence::here;
}

/// Failures go out at once, departures some at a time: whoever hears of a departure has heard what the rank said before.
void Node::note_departure(const Departure& departure, Endpoint::Id source) {
  {
    const std::lock_guard lock(mutex_);
    if (!departures_.add(departure)) return;
  }
  due_.emplace_back(departure, source);
  if (leaving()) return pass_on_departures();
  due_at_ = std::min(due_at_, Clock::now() + kGathering);
}

void Node::pass_on_departures() {
  due_at_ = Deadline::max();
  if (due_.empty()) return;
  const auto due = std::exchange(due_, {});
  for (const auto& [id, peer] : peers_) {
    std::vector<Departure> told;
    for (const auto& [departure, source] : due)
      if (source != id) told.push_back(departure);
    if (!told.empty()) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::departed), encode_departures(told));
  }
}

/// To the other end of a new link: the failures, then who has left.
void Node::tell_all_known(Endpoint::Id id) {
  for (const Announcement& news : known_)
    endpoint_->send(id, static_cast<std::uint32_t>(FrameType::failure), encode_failure(news));
  std::vector<Departure> departures;
  {
    const std::lock_guard lock(mutex_);
    departures = departures_.all();
  }
  if (!departures.empty())
    endpoint_->send(id, static_cast<std::uint32_t>(FrameType::departed), encode_departures(departures));
  if (leaving() && id == parent_) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::goodbye), {});
}

}  // namespace tamaki::bootstrap
