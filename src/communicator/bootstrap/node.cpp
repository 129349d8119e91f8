// Start and end of a rank's node, its connections, and the calls of the host program. Exchanges and news: news.cpp.

#include "communicator/bootstrap/node.hpp"

#include <algorithm>

#include "communicator/bootstrap/rendezvous.hpp"

namespace tamaki::bootstrap {
namespace {

using namespace std::chrono_literals;
constexpr auto kAttachDelay = 100ms;  // a parent that leaves is usually followed by its children: do not rush
constexpr auto kAttachTime = 10s;     // for one of the kin to answer
constexpr auto kDrain = 2000ms;       // for late ranks to hear from this process why the start failed
constexpr auto kLinger = 1000ms;      // for neighbours to take our goodbye

}  // namespace

Secret rendezvous_secret(const Secret& job, const std::string& label) {
  return derive_secret(std::span<const std::byte>(job), "rendezvous " + label);
}
Secret tree_secret(const Secret& job) { return derive_secret(std::span<const std::byte>(job), "tree"); }

Result<std::vector<Listener>> open_listeners() {
  const Result<std::vector<Interface>> interfaces = chosen_interfaces();
  if (!interfaces) return tl::unexpected<Error>(interfaces.error());
  std::vector<Listener> listeners;
  std::string why;
  for (const Interface& i : *interfaces) {
    if (listeners.size() == AddressSet::kMost) break;
    Result<Listener> listener = Listener::open(i.address);
    if (listener)
      listeners.push_back(std::move(*listener));
    else  // e.g. an IPv6 address that is still being checked for duplicates
      why += "; " + listener.error().message;
  }
  if (listeners.empty()) return fail(Code::system, "cannot listen on any chosen interface" + why, Scope::process);
  return listeners;
}

AddressSet addresses_of(const std::vector<Listener>& listeners) {
  AddressSet set;
  for (const Listener& l : listeners) set.addresses.push_back(l.address());
  return set;
}

// ---- Calls of the host program ----------------------------------------------------------------------------------

Result<std::unique_ptr<Control>> Node::join(NodeConfig config) {
  std::unique_ptr<Node> node(new Node(std::move(config)));
  if (Status status = node->start(); !status) return pass(std::move(status));
  if (Status status = node->wait_ready(); !status) {
    const Secret secret = node->config_.secret;
    const bool holds = node->config_.holds_rendezvous;
    const Deadline drained = std::min(node->config_.deadline, Clock::now() + kDrain);
    node.reset();  // says goodbye
    if (holds) drain_rendezvous(secret, drained);
    return pass(std::move(status));
  }
  return std::unique_ptr<Control>(std::move(node));
}

Status Node::start() {
  self_ = own_identity();
  if (config_.ranks == 1 && config_.rendezvous.addresses.empty()) {
    phase_ = Phase::ready;
    return {};
  }
  Result<std::unique_ptr<Endpoint>> endpoint = Endpoint::open(*this);
  if (!endpoint) return pass(std::move(endpoint));
  endpoint_ = std::move(*endpoint);
  own_addresses_ = addresses_of(config_.listeners);
  for (Listener& listener : config_.listeners)
    if (Status status = endpoint_->listen(std::move(listener), tree_secret(config_.secret)); !status) return status;
  config_.listeners.clear();
  return thread_.start("tmk-control", [this] { serve(); });
}

Status Node::wait_ready() {
  std::unique_lock lock(mutex_);
  // The service thread keeps the deadline and words the error.
  const auto settled = [&] { return phase_ != Phase::joining; };
  if (config_.deadline == Deadline::max())
    changed_.wait(lock, settled);
  else
    static_cast<void>(changed_.wait_until(lock, config_.deadline, settled) || changed_.wait_for(lock, 2 * kLastChance, settled));
  if (phase_ == Phase::ready) return {};
  if (failure_) return fail(failure_->code, failure_->message, Scope::communicator);
  return fail(Code::timeout,
              "the job of " + std::to_string(config_.ranks) + " ranks did not start within " +
                  duration_text(config_.timeout_ms),
              Scope::communicator);
}

Node::~Node() {
  depart();
  forget_ended_rendezvous();
  wipe(config_.secret);
}

void Node::depart() {
  if (endpoint_ != nullptr && thread_.in_owner_process()) {  // not in a forked child, which has no such thread
    listen(nullptr);
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    endpoint_->wake();
  }
  thread_.join();
}

void Node::listen(std::function<void(std::uint64_t, const Failure&)> listener) {
  {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
    if (!listener_ || undelivered_.empty()) return;
  }
  endpoint_->wake();
}

std::string Node::describe(int rank) const {
  const std::lock_guard lock(mutex_);
  std::string text = "rank " + std::to_string(rank);
  if (rank < 0 || static_cast<std::size_t>(rank) >= identities_.size()) return text;
  const RankIdentity& identity = identities_[static_cast<std::size_t>(rank)];
  return text + " (host " + identity.host_name + ", pid " + std::to_string(identity.pid) + ")";
}

void Node::set_identities(std::span<const RankIdentity> identities) {
  const std::lock_guard lock(mutex_);
  identities_.assign(identities.begin(), identities.end());
}

// ---- Service: start ---------------------------------------------------------------------------------------------

void Node::serve() {
  if (!config_.rendezvous.addresses.empty()) {
    rendezvous_ = endpoint_->dial(config_.rendezvous.addresses, rendezvous_secret(config_.secret, config_.rendezvous_label),
                                  config_.deadline, Endpoint::Refusal::wait);
  } else {
    begin_tree();
  }
  schedule();
  endpoint_->run();
}

void Node::begin_tree() {
  root_ = config_.rank == 0;
  if (!root_) {
    parent_rank_ = parent_of(config_.rank);
    parent_ = endpoint_->dial(config_.parent.addresses, tree_secret(config_.secret), config_.deadline,
                              Endpoint::Refusal::final);
  }
  contribute(0, config_.rank, {});  // "I am here"
}

void Node::on_open(Endpoint::Id id) {
  if (id == rendezvous_) {
    Writer enter;
    enter.put(std::int32_t{config_.rank}).put(std::int32_t{config_.ranks}).put(std::int32_t{config_.timeout_ms});
    enter.put(std::int32_t{poll_timeout(config_.deadline)}).put(static_cast<std::uint8_t>(config_.holds_rendezvous));
    enter.put_bytes(own_addresses_.encode());
    endpoint_->send(id, static_cast<std::uint32_t>(FrameType::enter), enter.bytes());
    entered_ = true;
    return;
  }
  peers_[id] = Peer{.rank = id == parent_ ? parent_rank_.load() : -1};
  if (id != parent_) {
    if (leaving()) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::goodbye), {});
    return;
  }
  say_hello(id);
  parent_attached_ = true;
  for (const auto& frame : waiting_up_) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::gather), frame);
  waiting_up_.clear();
  tell_all_known(id);
}

void Node::say_hello(Endpoint::Id id) {
  Writer hello;
  hello.put(std::int32_t{config_.rank}).put(std::int32_t{config_.ranks}).put(self_.host).put(self_.address_space);
  hello.put(self_.pid).put_bytes(own_addresses_.encode());
  endpoint_->send(id, static_cast<std::uint32_t>(FrameType::hello), hello.bytes());
}

void Node::take_hello(Endpoint::Id id, std::span<const std::byte> payload) {
  Reader reader(payload);
  const int rank = reader.get<std::int32_t>(), ranks = reader.get<std::int32_t>();
  const auto host = reader.get<std::uint64_t>(), space = reader.get<std::uint64_t>();
  const int pid = reader.get<std::int32_t>();
  const AddressSet addresses = AddressSet::decode(reader.get_bytes(AddressSet::kBytes));
  const bool from_parent = id == parent_;
  // Lower ranks come to say that they leave, see visit_kin().
  const bool lower = rank < 0 || rank == config_.rank || (rank < config_.rank && kin_.empty());
  if (!reader.ok() || (from_parent && rank != parent_rank_) || rank < 0 || (!from_parent && lower)) {
    endpoint_->close(id);  // not one of this job's, whatever it knows
    peers_.erase(id);
    return;
  }
  if (ranks != config_.ranks)
    return fail_all(Code::mismatch, rank,
                    "rank " + std::to_string(rank) + " says that the job has " + std::to_string(ranks) + " ranks, rank " +
                        std::to_string(config_.rank) + " says " + std::to_string(config_.ranks));
  Peer& peer = peers_[id];
  peer.rank = rank;
  peer.hello = true;
  // Descriptors that a child process inherited keep a dead rank's connections open: watch the process itself too.
  if (host == self_.host && space != self_.address_space) endpoint_->watch_process(id, pid);
  if (from_parent) return;
  say_hello(id);
  if (root_ && parent_of(rank) == 0) children_addresses_.emplace_back(rank, addresses);
  tell_all_known(id);
}

void Node::rendezvous_frame(FrameType type, std::span<const std::byte> payload) {
  Reader reader(payload);
  switch (type) {
    case FrameType::welcome: config_.rendezvous_holder = reader.get<std::int32_t>(); break;
    case FrameType::parent:
      config_.parent = AddressSet::decode(payload);
      begin_tree();
      break;
    case FrameType::failure: {
      Announcement news;
      if (decode_failure(payload, &news)) spread(news, rendezvous_);
      break;
    }
    default: break;
  }
}

/// At the root, when all ranks have arrived: tells everybody, with whom to attach to should a parent go.
void Node::become_ready() {
  Writer ready;
  std::ranges::sort(children_addresses_, {}, [](const auto& child) { return child.first; });
  ready.put(std::int32_t{0}).put_bytes(own_addresses_.encode());
  for (const auto& [rank, addresses] : children_addresses_) ready.put(std::int32_t{rank}).put_bytes(addresses.encode());
  take_ready(ready.bytes());
}

void Node::take_ready(std::span<const std::byte> payload) {
  kin_.clear();
  for (Reader reader(payload); !reader.rest().empty();) {
    Kin one;
    one.rank = reader.get<std::int32_t>();
    one.addresses = AddressSet::decode(reader.get_bytes(AddressSet::kBytes));
    if (!reader.ok()) break;
    kin_.push_back(std::move(one));
  }
  Writer down;
  if (!root_) down.put(std::int32_t{config_.rank}).put_bytes(own_addresses_.encode());
  down.put_bytes(payload);
  send_down(FrameType::ready, down.bytes());
  rendezvous_done_ = true;
  if (rendezvous_ != 0) {
    endpoint_->send(rendezvous_, static_cast<std::uint32_t>(FrameType::joined), {});
    endpoint_->finish(rendezvous_);
  }
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::joining) phase_ = Phase::ready;
  changed_.notify_all();
}

// ---- Service: connections ---------------------------------------------------------------------------------------

void Node::on_frame(Endpoint::Id id, std::uint32_t type, std::span<const std::byte> payload) {
  const auto kind = static_cast<FrameType>(type);
  if (id == rendezvous_) {
    rendezvous_frame(kind, payload);
    return schedule();
  }
  switch (kind) {
    case FrameType::hello: take_hello(id, payload); break;
    case FrameType::gather: {
      Reader reader(payload);
      const auto exchange = reader.get<std::uint64_t>();
      const auto rank = static_cast<int>(reader.get<std::uint32_t>());
      if (reader.ok() && rank >= 0 && rank < config_.ranks) contribute(exchange, rank, reader.rest());
      break;
    }
    case FrameType::result: take_result(payload); break;
    case FrameType::ready: take_ready(payload); break;
    case FrameType::failure: {
      Announcement news;
      if (decode_failure(payload, &news)) spread(news, id);
      break;
    }
    case FrameType::departed:
      for (const Departure& departure : decode_departures(payload)) note_departure(departure, id);
      break;
    case FrameType::goodbye:
      peers_[id].left = true;
      if (const int rank = peers_[id].rank; rank >= 0) note_departure({0, rank}, id);
      if (!leaving()) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::farewell), {});
      else if (id == parent_ && next_visit_ == 0) told_ = true;  // the parent sees to it
      break;
    case FrameType::farewell:
      peers_[id].farewell = told_ = true;
      finish_links();
      break;
    default: break;
  }
  schedule();
}

void Node::on_closed(Endpoint::Id id, const Error& why) {
  if (id == rendezvous_) {
    rendezvous_ = 0;
    if (rendezvous_done_ || leaving()) return finish_links();
    const int holder = config_.rendezvous_holder;
    fail_all(Code::peer_lost, holder,
             (holder >= 0 ? "rank " + std::to_string(holder) + ", which" : std::string("the process that made the id and")) +
                 " held the rendezvous at " + config_.rendezvous.text() + ", was lost while the job started (" +
                 why.message + ")");
    return schedule();
  }
  const Peer peer = peers_[id];
  peers_.erase(id);
  bool joining;
  {
    const std::lock_guard lock(mutex_);
    joining = phase_ == Phase::joining;
  }
  // After its farewell it was for us to end the link. One that closes before its hello, once the job has started, may be
  // leaving without having seen this link; should it have died, those that had links with it know.
  const bool died = !peer.left && !peer.farewell && peer.rank >= 0 && (peer.hello || joining);
  if (leaving()) {
    if (died && !kin_.empty()) lost(peer.rank, why.message);
    if (id == parent_) parent_ = 0;
    return finish_links();
  }
  if (peer.left && joining)
    fail_all(Code::peer_lost, peer.rank, "rank " + std::to_string(peer.rank) + " left while the job started");
  if (died) lost(peer.rank, why.message);
  if (id == parent_) parent_gone();
  schedule();
}

void Node::on_process_end(Endpoint::Id id) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  endpoint_->close(id);
  on_closed(id, {Code::peer_lost, Scope::connection, "its process has ended"});
}

void Node::on_dial_failed(Endpoint::Id id, const Error& why) {
  if (leaving()) {
    if (id == rendezvous_) rendezvous_ = 0;
    if (id == parent_) parent_ = 0;
    return finish_links();
  }
  if (id == rendezvous_) {
    rendezvous_ = 0;
    const int holder = config_.rendezvous_holder;
    fail_all(why.code, holder,
             (holder >= 0 ? "rank " + std::to_string(holder) + " did not open the rendezvous" : std::string("nobody answered")) +
                 " at " + config_.rendezvous.text() + " within " + duration_text(config_.timeout_ms) + " (" + why.message + ")");
  } else if (id == parent_) {
    parent_ = 0;
    bool joining;
    {
      const std::lock_guard lock(mutex_);
      joining = phase_ == Phase::joining;
    }
    if (joining)
      fail_all(why.code, parent_rank_, "rank " + std::to_string(parent_rank_) + " did not answer at " +
                                           config_.parent.text() + " (" + why.message + ")");
    else
      attach_to_kin();
  }
  schedule();
}

void Node::on_wake() {
  std::vector<Announcement> outbox;
  std::vector<std::uint64_t> leaves;
  bool departs;
  Exchange* exchange = nullptr;
  std::vector<std::byte> mine;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    outbox.swap(outbox_);
    leaves.swap(leaves_);
    departs = leaving_;
    if (exchange_ != nullptr && !exchange_->sent) {
      exchange = exchange_;
      exchange->sent = true;
      number = exchange->number;
      mine.assign(exchange->mine.begin(), exchange->mine.end());
    }
  }
  for (const Announcement& news : outbox) spread(news, 0);
  if (exchange != nullptr) contribute(number, config_.rank, mine);
  for (const std::uint64_t communicator : leaves) note_departure({communicator, config_.rank}, 0);
  deliver();
  if (departs && !leaving()) say_goodbye();
  schedule();
}

// ---- Service: the end -------------------------------------------------------------------------------------------

void Node::say_goodbye() {
  linger_until_ = Clock::now() + kLinger;
  endpoint_->stop_listening();
  attach_at_ = Deadline::max();
  pass_on_departures();
  if (rendezvous_ != 0 && entered_) {
    endpoint_->finish(rendezvous_);  // it may still carry the news why this rank leaves
  } else if (rendezvous_ != 0) {
    endpoint_->close(rendezvous_);
    rendezvous_ = 0;
  }
  for (const auto& [id, peer] : peers_) endpoint_->send(id, static_cast<std::uint32_t>(FrameType::goodbye), {});
  if (kin_.empty() && dialling()) {  // the start has failed
    endpoint_->close(parent_);
    parent_ = 0;
  }
  finish_links();
}

/// While this rank leaves: ends its stream on each link when all the others are done, and the service when none is left.
void Node::finish_links() {
  if (!leaving() || dialling()) return;
  if (peers_.empty() && (told_ || !visit_kin())) {
    if (rendezvous_ == 0) endpoint_->quit();
    return;
  }
  const auto open = std::ranges::count_if(peers_, [](const auto& entry) { return !entry.second.farewell; });
  for (const auto& [id, peer] : peers_)
    if (open - (peer.farewell ? 0 : 1) == 0) endpoint_->finish(id);
}

/// Nobody has answered this rank's goodbye, and it had no parent to see to it: it looks for somebody who stays, also
/// among higher ranks, for no longer than it takes to tell. False: none is left to ask.
bool Node::visit_kin() {
  while (next_visit_ < kin_.size()) {
    const Kin& kin = kin_[next_visit_++];
    if (kin.rank == config_.rank) continue;
    {
      const std::lock_guard lock(mutex_);
      if (departures_.contains({0, kin.rank})) continue;
    }
    parent_rank_ = kin.rank;
    parent_attached_ = false;
    parent_ = endpoint_->dial(kin.addresses.addresses, tree_secret(config_.secret), linger_until_, Endpoint::Refusal::at_once);
    return true;
  }
  return false;
}

void Node::parent_gone() {
  parent_ = 0;
  parent_attached_ = false;
  attach_at_ = Clock::now() + kAttachDelay;
}

/// The next of the kin that may still be there; with none left below this rank, this rank is a root.
void Node::attach_to_kin() {
  attach_at_ = Deadline::max();
  // The list begins with the parent, which is the one that went.
  while (++next_kin_ < kin_.size()) {
    const Kin& kin = kin_[next_kin_];
    if (kin.rank == parent_rank_) continue;
    if (kin.rank >= config_.rank) break;
    {
      const std::lock_guard lock(mutex_);
      if (departures_.contains({0, kin.rank})) continue;
    }
    parent_rank_ = kin.rank;
    parent_attached_ = false;
    parent_ = endpoint_->dial(kin.addresses.addresses, tree_secret(config_.secret), Clock::now() + kAttachTime,
                              Endpoint::Refusal::at_once);
    return;
  }
  root_ = true;
  for (const auto& frame : std::exchange(waiting_up_, {})) {
    Reader reader(frame);
    const auto exchange = reader.get<std::uint64_t>();
    const auto rank = static_cast<int>(reader.get<std::uint32_t>());
    collect(exchange, rank, reader.rest());
  }
}

void Node::on_timer() {
  const auto now = Clock::now();
  if (linger_until_ <= now) return endpoint_->quit();
  if (attach_at_ <= now) attach_to_kin();
  if (due_at_ <= now) pass_on_departures();
  bool joining;
  {
    const std::lock_guard lock(mutex_);
    joining = phase_ == Phase::joining;
  }
  if (joining && config_.deadline <= now && !last_chance_) {
    last_chance_ = now + kLastChance;
  } else if (joining && last_chance_ && *last_chance_ <= now) {
    // The root or the rendezvous says who is missing; this is for whoever does not hear from them.
    int rank = root_ ? -1 : parent_of(config_.rank);
    std::string where = parent_attached_ ? "no word through rank " : "no connection to rank ";
    where += std::to_string(rank);
    if (parent_ == 0 && !root_ && rendezvous_ != 0) {
      rank = config_.rendezvous_holder;
      where = "no word from the rendezvous at " + config_.rendezvous.text();
    }
    fail_all(Code::timeout, rank, "the job did not start within " + duration_text(config_.timeout_ms) + " (" + where + ")");
  }
  std::vector<std::uint64_t> late;
  for (const auto& [exchange, collection] : collections_)
    if (collection.deadline <= now) late.push_back(exchange);
  for (const std::uint64_t exchange : late) collection_late(exchange);
  schedule();
}

void Node::schedule() {
  Deadline next = std::min({attach_at_, linger_until_, due_at_});
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::joining) next = std::min(next, last_chance_.value_or(config_.deadline));
  }
  for (const auto& [exchange, collection] : collections_) next = std::min(next, collection.deadline);
  endpoint_->set_timer(next);
}

}  // namespace tamaki::bootstrap
