#include "communicator/bootstrap/endpoint.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tamaki::bootstrap {
namespace {

using namespace std::chrono_literals;

// Keys of epoll events: the kind in the two top bits (0: a connection), an id or index below.
constexpr std::uint64_t kDoorKey = 1ull << 62, kWakeKey = 2ull << 62, kProcessKey = 3ull << 62;
constexpr std::uint64_t kKindMask = 3ull << 62;

constexpr auto kAttemptTime = 3000ms;        // for one address to answer and prove itself
constexpr auto kPauseBetweenRounds = 30ms;   // grows with refusals up to the next
constexpr auto kLongestPause = 300ms;
constexpr std::size_t kFinalRefusals = 5;    // rounds of refusals that Refusal::final bears
constexpr int kIdleSeconds = 10;             // of keep-alive: a host that vanished is noticed after 30 s

constexpr std::size_t kHeaderBytes = 8;

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::open(Handler& handler) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(handler));
  endpoint->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!endpoint->epoll_) return fail_errno("epoll_create1");
  endpoint->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!endpoint->wake_) return fail_errno("eventfd");
  if (Status status = endpoint->watch(endpoint->wake_.get(), kWakeKey, EPOLLIN, false); !status)
    return pass(std::move(status));
  return endpoint;
}

Endpoint::~Endpoint() {
  for (Door& door : doors_) wipe(door.secret);
  for (auto& [id, dialer] : dialers_) wipe(dialer.secret);
}

Status Endpoint::watch(int fd, std::uint64_t key, std::uint32_t events, bool known) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("epoll_ctl");
  return {};
}

void Endpoint::wake() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the wake-up is pending anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

// ---- Accepting --------------------------------------------------------------------------------------------------

Status Endpoint::listen(Listener listener, const Secret& secret) {
  if (Status status = watch(listener.fd(), kDoorKey | doors_.size(), EPOLLIN, false); !status) return status;
  doors_.push_back({std::move(listener), secret});
  return {};
}

void Endpoint::stop_listening() {
  for (Door& door : doors_) wipe(door.secret);
  doors_.clear();
  doors_resume_ = Deadline::max();
}

/// Without free descriptors the listener would stay readable and the loop would spin.
void Endpoint::pause_accepting() {
  for (std::size_t i = 0; i < doors_.size(); ++i) (void)watch(doors_[i].listener.fd(), kDoorKey | i, 0, true);
  doors_paused_ = true;
  doors_resume_ = Clock::now() + 50ms;
}

/// Before one more unproven connection is held: the oldest gives way.
void Endpoint::make_room() {
  const auto is_unproven = [&](Id id) {
    const auto it = connections_.find(id);
    return it != connections_.end() && it->second.stage == Stage::proving;
  };
  std::erase_if(unproven_, [&](Id id) { return !is_unproven(id); });
  while (unproven_.size() >= kMostUnproven) {
    connections_.erase(unproven_.front());
    unproven_.pop_front();
  }
}

void Endpoint::accept_from(Door& door) {
  // A bounded number at a time, so that a flood does not keep the connections that count from being served.
  for (int n = 0; n < 32; ++n) {
    Result<std::optional<Socket>> next = door.listener.try_accept();
    if (!next) return pause_accepting();
    if (!*next) return;
    make_room();
    const Id id = next_id_++;
    Connection& connection = connections_[id];
    connection.socket = std::move(**next);
    connection.handshake.emplace(Handshake::Role::accepted, door.secret);
    connection.deadline = Clock::now() + kProofTime;
    unproven_.push_back(id);
    if (!watch(connection.socket.fd(), id, EPOLLIN, false)) {
      connections_.erase(id);
      continue;
    }
    connection.interest = EPOLLIN;
    // Whoever is honest has sent the first message already: serve it now, before the flood behind it.
    serve(id, EPOLLIN);
  }
}

// ---- Dialing ----------------------------------------------------------------------------------------------------

Endpoint::Id Endpoint::dial(std::vector<Address> addresses, const Secret& secret, Deadline deadline, Refusal refusal) {
  const Id id = next_id_++;
  Dialer& dialer = dialers_[id];
  dialer.addresses = std::move(addresses);
  dialer.secret = secret;
  dialer.deadline = deadline;
  dialer.refusal = refusal;
  dialer.resume = Clock::now();  // the first attempt is made inside run(): its failure calls the handler
  return id;
}

void Endpoint::attempt(Id id) {
  Dialer& dialer = dialers_.at(id);
  dialer.resume = Deadline::max();
  if (dialer.addresses.empty()) return attempt_failed(id, {Code::invalid_argument, Scope::connection, "no address"});
  const Address& address = dialer.addresses[dialer.next];
  Result<Socket> socket = Socket::start_connect(address);
  if (!socket) return attempt_failed(id, socket.error());
  Connection& connection = connections_[id];
  connection.socket = std::move(*socket);
  connection.stage = Stage::connecting;
  connection.dialed = true;
  connection.deadline = std::min(dialer.deadline, Clock::now() + kAttemptTime);
  connection.interest = EPOLLOUT;
  if (Status status = watch(connection.socket.fd(), id, EPOLLOUT, false); !status) attempt_failed(id, status.error());
}

void Endpoint::attempt_failed(Id id, const Error& why) {
  const auto failed = connections_.find(id);
  const bool answered = failed != connections_.end() && failed->second.stage == Stage::proving;
  if (failed != connections_.end()) connections_.erase(failed);
  const auto it = dialers_.find(id);
  if (it == dialers_.end()) return;
  Dialer& dialer = it->second;
  // Somebody who answers but proves nothing says more than another address where nobody listens.
  if (answered || !dialer.answered) dialer.last_error = why.message;
  dialer.answered = dialer.answered || answered;
  // Whoever answers and then drops the connection may be busy with strangers; it is there.
  const bool refused = why.code == Code::peer_lost && !(answered && dialer.refusal == Refusal::at_once);
  dialer.refused = refused ? dialer.refused + 1 : 0;
  const std::size_t rounds = dialer.refused / std::max<std::size_t>(1, dialer.addresses.size());
  const std::size_t borne = dialer.refusal == Refusal::at_once ? 1 : kFinalRefusals;
  const bool hopeless = dialer.addresses.empty() || (dialer.refusal != Refusal::wait && rounds >= borne);
  const auto now = Clock::now();
  if (!hopeless && now < dialer.deadline) {
    dialer.next = (dialer.next + 1) % dialer.addresses.size();
    const auto pause = dialer.next != 0 ? 0ms : std::min<std::chrono::milliseconds>(
        kLongestPause, kPauseBetweenRounds * static_cast<int>(1 + rounds));
    dialer.resume = std::min(dialer.deadline, now + pause);
    return;
  }
  const Error last{hopeless ? Code::peer_lost : Code::timeout, Scope::connection, dialer.last_error};
  wipe(dialer.secret);
  dialers_.erase(it);
  handler_.on_dial_failed(id, last);
}

// ---- Serving ----------------------------------------------------------------------------------------------------

void Endpoint::update_interest(Id id, Connection& connection) {
  std::uint32_t wanted = 0;
  if (connection.stage == Stage::connecting)
    wanted = EPOLLOUT;
  else if (connection.stage == Stage::proving)
    wanted = connection.handshake->outgoing().empty() ? EPOLLIN : EPOLLOUT;
  else
    wanted = EPOLLIN | (connection.out_at < connection.out.size() ? EPOLLOUT : 0u);
  if (wanted == connection.interest) return;
  connection.interest = wanted;
  if (Status status = watch(connection.socket.fd(), id, wanted, true); !status) broken(id, status.error());
}

/// False: the connection is gone, or not through yet.
bool Endpoint::prove(Id id, Connection& connection) {
  Handshake& handshake = *connection.handshake;
  while (!handshake.done()) {
    const bool sending = !handshake.outgoing().empty();
    Result<std::size_t> moved = sending ? connection.socket.send_some(handshake.outgoing())
                                        : connection.socket.receive_some(handshake.room());
    if (!moved) {
      if (connection.dialed && moved.error().code == Code::peer_lost)
        moved.error().message += " during authentication (do both have the same secret?)";
      broken(id, moved.error());
      return false;
    }
    if (*moved == 0) {
      update_interest(id, connection);
      return false;
    }
    if (sending) {
      handshake.sent(*moved);
    } else if (Status status = handshake.received(*moved); !status) {
      broken(id, status.error());
      return false;
    }
  }
  connection.handshake.reset();
  connection.stage = Stage::open;
  connection.deadline = Deadline::max();
  // Best effort: where it is refused, hosts that vanish without a word are found by the operation's deadline.
  (void)connection.socket.watch_peer(kIdleSeconds);
  if (const auto it = dialers_.find(id); it != dialers_.end()) {
    wipe(it->second.secret);
    dialers_.erase(it);
  }
  update_interest(id, connection);
  if (!connections_.contains(id)) return false;
  handler_.on_open(id);
  return connections_.contains(id);
}

void Endpoint::serve(Id id, std::uint32_t events) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Connection& connection = it->second;
  if (connection.stage == Stage::connecting) {
    const Address& address = dialers_.at(id).addresses[dialers_.at(id).next];
    Result<bool> connected = connection.socket.finish_connect(address);
    if (!connected) return broken(id, connected.error());
    if (!*connected) return;
    connection.stage = Stage::proving;
    connection.handshake.emplace(Handshake::Role::dialled, dialers_.at(id).secret);
  }
  if (connection.stage == Stage::proving) {
    if (prove(id, connection)) receive(id);
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) receive(id);
  const auto again = connections_.find(id);
  if (again == connections_.end() || (events & EPOLLOUT) == 0) return;
  Error why;
  if (!flush(again->second, &why)) return broken(id, why);
  update_interest(id, again->second);
}

/// Reads what is there and hands out whole frames. What arrived before an end of stream counts. Returns bytes read.
std::size_t Endpoint::receive(Id id) {
  std::array<std::byte, 16384> buffer;
  std::size_t total = 0;
  std::optional<Error> end;
  for (int n = 0; n < 16 && !end; ++n) {  // bounded: others want to be served too; epoll reports the rest again
    Connection& connection = connections_.at(id);
    Result<std::size_t> got = connection.socket.receive_some(buffer);
    if (!got)
      end = got.error();
    else if (*got == 0)
      break;
    else
      connection.in.insert(connection.in.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*got));
    total += got.value_or(0);
  }
  // Frames are taken out of the connection before the handler sees them: it may close the connection.
  std::vector<std::byte> in = std::move(connections_.at(id).in);
  connections_.at(id).in = {};
  std::size_t at = 0;
  while (in.size() - at >= kHeaderBytes) {
    Reader header(std::span<const std::byte>(in).subspan(at, kHeaderBytes));
    const auto length = header.get<std::uint32_t>();
    const auto type = header.get<std::uint32_t>();
    if (length > kMostPayload) {
      end = Error{Code::internal, Scope::connection, "a frame of " + std::to_string(length) + " bytes, more than " +
                                                         std::to_string(kMostPayload)};
      at = in.size();
      break;
    }
    if (in.size() - at - kHeaderBytes < length) break;
    handler_.on_frame(id, type, std::span(in).subspan(at + kHeaderBytes, length));
    if (!connections_.contains(id)) return total;
    at += kHeaderBytes + length;
  }
  if (end) {
    broken(id, *end);
    return total;
  }
  in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(at));
  connections_.at(id).in = std::move(in);
  return total;
}

bool Endpoint::flush(Connection& connection, Error* why) {
  while (connection.out_at < connection.out.size()) {
    Result<std::size_t> sent = connection.socket.send_some(std::span(connection.out).subspan(connection.out_at));
    if (!sent) {
      *why = sent.error();
      return false;
    }
    if (*sent == 0) return true;
    connection.out_at += *sent;
  }
  connection.out.clear();
  connection.out_at = 0;
  if (connection.finishing && !connection.end_sent) {
    connection.socket.shutdown_send();
    connection.end_sent = true;
  }
  return true;
}

void Endpoint::send(Id id, std::uint32_t type, std::span<const std::byte> payload) {
  const auto it = connections_.find(id);
  if (it == connections_.end() || it->second.stage != Stage::open || it->second.finishing) return;
  Connection& connection = it->second;
  if (connection.out_at > connection.out.size() / 2) {
    connection.out.erase(connection.out.begin(), connection.out.begin() + static_cast<std::ptrdiff_t>(connection.out_at));
    connection.out_at = 0;
  }
  Writer header;
  header.put(static_cast<std::uint32_t>(payload.size())).put(type);
  connection.out.insert(connection.out.end(), header.bytes().begin(), header.bytes().end());
  connection.out.insert(connection.out.end(), payload.begin(), payload.end());
  Error why;
  // A failure shows again when the loop reads the connection, which is where the handler may be called.
  if (flush(connection, &why)) update_interest(id, connection);
}

void Endpoint::finish(Id id) {
  const auto it = connections_.find(id);
  if (it == connections_.end() || it->second.stage != Stage::open) return close(id);
  it->second.finishing = true;
  Error why;
  if (flush(it->second, &why)) update_interest(id, it->second);
}

void Endpoint::close(Id id) {
  connections_.erase(id);
  if (const auto it = dialers_.find(id); it != dialers_.end()) {
    wipe(it->second.secret);
    dialers_.erase(it);
  }
}

void Endpoint::broken(Id id, const Error& why) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const Stage stage = it->second.stage;
  const bool dialed = it->second.dialed;
  if (stage != Stage::open && dialed) return attempt_failed(id, why);
  connections_.erase(it);
  if (stage == Stage::open) handler_.on_closed(id, why);  // strangers pass unnoticed
}

void Endpoint::watch_process(Id id, int pid) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
#ifdef SYS_pidfd_open
  it->second.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (it->second.process) (void)watch(it->second.process.get(), kProcessKey | id, EPOLLIN, false);
#else
  (void)pid;
#endif
}

std::string Endpoint::peer_text(Id id) const {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return "a closed connection";
  const Result<Address> peer = it->second.socket.peer_address();
  return peer ? peer->text() : std::string("an unknown address");
}

// ---- The loop ---------------------------------------------------------------------------------------------------

Deadline Endpoint::next_deadline() const {
  Deadline next = std::min(timer_, doors_resume_);
  for (const auto& [id, dialer] : dialers_) {
    next = std::min(next, dialer.resume);
    if (const auto it = connections_.find(id); it != connections_.end()) next = std::min(next, it->second.deadline);
  }
  for (const Id id : unproven_)
    if (const auto it = connections_.find(id); it != connections_.end()) next = std::min(next, it->second.deadline);
  return next;
}

void Endpoint::check_deadlines() {
  const auto now = Clock::now();
  if (doors_resume_ <= now) {
    doors_resume_ = Deadline::max();
    if (doors_paused_)
      for (std::size_t i = 0; i < doors_.size(); ++i) (void)watch(doors_[i].listener.fd(), kDoorKey | i, EPOLLIN, true);
    doors_paused_ = false;
  }
  while (!unproven_.empty()) {  // oldest first, all with the same time to live
    const auto it = connections_.find(unproven_.front());
    const bool waiting = it != connections_.end() && it->second.stage == Stage::proving;
    if (waiting && it->second.deadline > now) break;
    if (waiting) connections_.erase(it);
    unproven_.pop_front();
  }
  std::vector<Id> resume, late;
  for (const auto& [id, dialer] : dialers_) {
    if (dialer.resume <= now) resume.push_back(id);
    const auto it = connections_.find(id);
    if (it != connections_.end() && it->second.deadline <= now) late.push_back(id);
  }
  for (const Id id : late)
    if (const auto it = dialers_.find(id); it != dialers_.end())
      attempt_failed(id, {Code::timeout, Scope::connection, "no answer from " + it->second.addresses[it->second.next].text()});
  for (const Id id : resume)
    if (dialers_.contains(id)) {
      if (dialers_.at(id).deadline <= now && !dialers_.at(id).last_error.empty())
        attempt_failed(id, {Code::timeout, Scope::connection, dialers_.at(id).last_error});
      else
        attempt(id);
    }
  if (timer_ <= now) {
    timer_ = Deadline::max();
    handler_.on_timer();
  }
}

void Endpoint::run() {
  std::array<epoll_event, 64> events;
  while (!quit_) {
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   poll_timeout(next_deadline()));
    for (int i = 0; i < ready && !quit_; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      const std::uint64_t at = key & ~kKindMask;
      switch (key & kKindMask) {
        case kWakeKey: {
          std::uint64_t count;
          [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
          handler_.on_wake();
          break;
        }
        case kDoorKey:
          if (at < doors_.size()) accept_from(doors_[at]);
          break;
        case kProcessKey: {
          const auto it = connections_.find(at);
          if (it == connections_.end()) break;
          it->second.process.reset();
          while (connections_.contains(at) && receive(at) > 0) {  // a goodbye may be among what it sent
          }
          if (connections_.contains(at)) handler_.on_process_end(at);
          break;
        }
        default: serve(at, events[static_cast<std::size_t>(i)].events);
      }
    }
    if (!quit_) check_deadlines();
  }
}

}  // namespace tamaki::bootstrap
