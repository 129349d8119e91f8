#include "transports/tcp/transport.hpp"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"

namespace tamaki::tcp {
namespace {

constexpr int kEventsAtOnce = 64;

Address address_of(const OfferedAddress& offered) {
  if (offered.family == 6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(offered.port);
    std::memcpy(&six.sin6_addr, offered.bytes.data(), 16);
    return Address(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(offered.port);
  std::memcpy(&four.sin_addr, offered.bytes.data(), 4);
  return Address(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

std::span<const std::byte> bytes_of(const OfferedAddresses& offer) {
  return std::as_bytes(std::span(&offer, 1));
}

}  // namespace

TcpTransport::TcpTransport(const TransportContext& context)
    : context_(context), secret_(context.secret.begin(), context.secret.end()), process_(::getpid()) {
  trouble_ = listen();
}

Status TcpTransport::listen() {
  Result<std::vector<Interface>> chosen = chosen_interfaces();
  if (!chosen) return pass(std::move(chosen));
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno("tcp: epoll_create1");
  std::vector<std::string> names;
  std::string refused;
  for (const Interface& interface : *chosen) {
    if (offer_.count == kMaxAddresses) {
      log(Level::info, "tcp: more than " + std::to_string(kMaxAddresses) + " addresses; " + interface.name +
                           " " + interface.address.text() + " and those after it are not used");
      break;
    }
    Result<Listener> listener = Listener::open(interface.address, SOMAXCONN);
    if (!listener) {  // an address that is just coming or going; the others may do
      refused += "; " + interface.name + ": " + listener.error().message;
      continue;
    }
    OfferedAddress& offered = offer_.addresses[offer_.count++];
    const auto known = std::ranges::find(names, interface.name);
    offered.interface = static_cast<std::uint8_t>(known - names.begin());
    if (known == names.end()) names.push_back(interface.name);
    offered.family = interface.address.family() == AF_INET ? 4 : 6;
    offered.prefix = static_cast<std::uint8_t>(interface.prefix_bits);
    offered.port = listener->address().port();
    offered.loopback = interface.loopback ? 1 : 0;
    std::ranges::copy(interface.address.bytes(), offered.bytes.begin());
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener->fd(), &event) != 0)
      return fail_errno("tcp: epoll_ctl");
    listeners_.push_back(std::move(*listener));
  }
  if (listeners_.empty()) return fail(Code::system, "tcp: cannot listen on any interface" + refused);
  if (!refused.empty()) log(Level::warn, "tcp: some addresses are not used" + refused);
  accepting_ = true;
  return {};
}

Status TcpTransport::setup(const Exchange& exchange) {
  if (!trouble_) offer_ = {};  // count 0 tells the others
  offers_.resize(context_.ranks.size());
  if (Status status = exchange(bytes_of(offer_), std::as_writable_bytes(std::span(offers_))); !status) {
    offers_.clear();
    return status;
  }
  return trouble_;
}

std::string TcpTransport::describe(int peer) const {
  const RankIdentity& identity = context_.ranks[static_cast<std::size_t>(peer)];
  return "rank " + std::to_string(peer) + " (host " +
         std::string(identity.host_name, strnlen(identity.host_name, sizeof identity.host_name)) +
         ", pid " + std::to_string(identity.pid) + ")";
}

std::vector<Path> TcpTransport::paths_to(int peer) const {
  const auto mine = static_cast<std::size_t>(context_.rank), theirs = static_cast<std::size_t>(peer);
  if (std::max(mine, theirs) >= offers_.size() || peer < 0 || mine == theirs) return {};
  const bool same_host = context_.ranks[mine].host == context_.ranks[theirs].host;
  return pair_addresses(offers_[std::min(mine, theirs)], offers_[std::max(mine, theirs)], same_host);
}

bool TcpTransport::reaches(int peer, std::string* why) const {
  if (!paths_to(peer).empty()) return true;
  if (why == nullptr) return false;
  const bool known = peer >= 0 && static_cast<std::size_t>(peer) < offers_.size();
  if (!trouble_)
    *why = trouble_.error().message;
  else if (peer == context_.rank)
    *why = "the rank itself";
  else if (known && offers_[static_cast<std::size_t>(peer)].count == 0)
    *why = describe(peer) + " listens on no interface";
  else
    *why = "no address here fits one of rank " + std::to_string(peer) +
           " (TAMAKI_INTERFACES chooses interfaces)";
  return false;
}

TcpTransport::Peer& TcpTransport::peer_entry(int peer) {
  Peer& entry = peers_[peer];
  if (entry.paths.empty()) {
    entry.paths = paths_to(peer);
    entry.connections.resize(entry.paths.size());
  }
  return entry;
}

Result<Link*> TcpTransport::connect(int peer, int channel) {
  std::string why;
  if (!reaches(peer, &why))
    return fail(Code::invalid_usage, "tcp does not reach rank " + std::to_string(peer) + ": " + why,
                Scope::communicator);
  if (channel < 0 || channel >= kMaxChannels)
    return fail(
        Code::invalid_usage,
        "tcp: channel " + std::to_string(channel) + " is not in 0.." + std::to_string(kMaxChannels - 1),
        Scope::communicator);
  if (context_.depth > Channel::kMaxDepth)
    return fail(Code::internal, "tcp: rings of " + std::to_string(context_.depth) + " slots; at most " +
                                    std::to_string(Channel::kMaxDepth), Scope::communicator);
  Peer& entry = peer_entry(peer);
  if (const auto found = entry.channels.find(channel); found != entry.channels.end())
    return &found->second->link;
  if (!failure_) return tl::unexpected<Error>(failure_.error());
  Result<RingMemory> memory = RingMemory::map(2 * ring_bytes(context_.slot_bytes, context_.depth));
  if (!memory) return pass(std::move(memory));
  auto made = std::make_unique<Channel>(std::move(*memory), context_.slot_bytes, context_.depth);
  made->link.peer = peer;
  made->link.channel = channel;
  made->link.transport = this;
  const std::size_t path = static_cast<std::size_t>(channel) % entry.paths.size();
  for (std::size_t i = 0; i < entry.paths.size(); ++i)
    if (entry.connections[i] == nullptr && context_.rank < peer)
      if (Status status = dial(peer, i); !status) return pass(std::move(status));
  Channel& kept = *(entry.channels[channel] = std::move(made));
  entry.all.push_back(&kept);
  if (Watched* watched = entry.connections[path].get(); watched != nullptr) {
    kept.carrier = watched;
    Status added = watched->connection->add(kept);
    settle(*watched);
    if (!added) {
      Error error = added.error();
      note(std::move(added));
      return tl::unexpected<Error>(std::move(error));
    }
  }
  return &kept.link;
}

Status TcpTransport::dial(int peer, std::size_t path) {
  Peer& entry = peers_[peer];
  const Path pair = entry.paths[path];  // this rank is the lower one
  const OfferedAddress& own = offer_.addresses[pair.low];
  const Address local = address_of(own).with_port(0);
  const Address remote = address_of(offers_[static_cast<std::size_t>(peer)].addresses[pair.high]);
  Result<Socket> socket = Socket::start_connect(remote, &local);
  if (!socket)
    return fail(socket.error().code,
                "tcp: " + describe(peer) + " from " + local.text() + ": " + socket.error().message,
                Scope::communicator);
  std::unique_ptr<Watched>& watched = entry.connections[path];
  const int dials = watched == nullptr ? 1 : watched->dials + 1;
  if (watched == nullptr) watched = std::make_unique<Watched>();
  watched->connection = std::make_unique<Connection>(
      Connection::Dialled{.socket = std::move(*socket),
                          .remote = remote,
                          .secret = secret_,
                          .hello = {.communicator = context_.communicator,
                                    .from = static_cast<std::uint32_t>(context_.rank),
                                    .to = static_cast<std::uint32_t>(peer)},
                          .path = static_cast<std::uint32_t>(path),
                          .peer = describe(peer)});
  if (entry.paths.size() > 1) watched->connection->share(&entry.all);
  watched->interest = 0;
  watched->dials = dials;
  watched->peer = peer;
  for (auto& [number, channel] : entry.channels) {
    if (channel->carrier != watched.get()) continue;  // after a first dial that the peer dropped
    channel->active = false;
    channel->open_due = true;
    if (Status status = watched->connection->add(*channel); !status) return status;
  }
  settle(*watched);
  return {};
}

void TcpTransport::note(Status&& status) {
  if (!status && failure_) failure_ = std::move(status);
}

void TcpTransport::register_interest(Watched& watched) {
  const std::uint32_t wanted = watched.connection->interest();
  if (wanted == watched.interest) return;
  const int fd = watched.connection->fd();
  epoll_event event{.events = wanted, .data = {.ptr = &watched}};
  // A closed descriptor has left the set by itself.
  if (fd >= 0 &&
      ::epoll_ctl(epoll_.get(), watched.interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
    note(fail_errno("tcp: epoll_ctl", Scope::communicator));
  watched.interest = wanted;
}

void TcpTransport::settle(Watched& watched) {
  register_interest(watched);
  if (!watched.listed && watched.connection->stage() == Connection::Stage::ready) {
    watched.listed = true;
    established_.push_back(&watched);
    busy_.reserve(established_.size());
  }
  if (watched.busy || !watched.connection->busy()) return;
  watched.busy = true;
  busy_.push_back(&watched);
}

void TcpTransport::flush(Link& link) {
  Channel& channel = *static_cast<OwnedLink&>(link).owner;
  if (channel.carrier == nullptr) return;  // its connection is still to come and looks at it then
  auto& watched = *static_cast<Watched*>(channel.carrier);
  watched.connection->activate(channel);
  note(watched.connection->send());
  settle(watched);
  if (watched.connection->blocked()) relieve(watched);
}

void TcpTransport::relieve(Watched& watched) {
  const auto found = peers_.find(watched.peer);
  if (found == peers_.end() || found->second.paths.size() < 2) return;
  for (const auto& other : found->second.connections) {
    if (other == nullptr || other.get() == &watched) continue;
    note(other->connection->send());
    settle(*other);
  }
}

Status TcpTransport::progress() {
  step(0);
  return failure_;
}

LinkEnd TcpTransport::end_of(const Link& link) const {
  const Channel& channel = *static_cast<const OwnedLink&>(link).owner;
  if (channel.carrier == nullptr) return LinkEnd::unknown;
  const Connection& connection = *static_cast<const Watched*>(channel.carrier)->connection;
  if (connection.stage() == Connection::Stage::ready) return LinkEnd::here;
  return connection.stage() == Connection::Stage::closed ? LinkEnd::left : LinkEnd::unknown;
}

void TcpTransport::step(int timeout_ms) {
  if (!epoll_) return;
  // Only connections with something committed, or with received messages whose credit is still to be told.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < busy_.size(); ++i) {
    Watched& watched = *busy_[i];
    note(watched.connection->send());
    if (watched.connection->blocked()) relieve(watched);
    register_interest(watched);
    watched.busy = watched.connection->busy();
    if (watched.busy) busy_[kept++] = &watched;
  }
  busy_.resize(kept);
  if (timeout_ms == 0 && read_directly()) return;
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == nullptr)
      accept_strangers();
    else
      on_event(*static_cast<Watched*>(event.data.ptr), event.events);
  }
  if (!strangers_.empty()) drop_strangers();
}

bool TcpTransport::read_directly() {
  if (established_.empty() || established_.size() > kFewConnections || ++steps_ % kStepsPerPoll == 0)
    return false;
  for (const Watched* watched : established_)
    if (!watched->connection->only_reads()) return false;
  for (Watched* watched : established_) on_event(*watched, EPOLLIN);
  return true;
}

void TcpTransport::on_event(Watched& watched, std::uint32_t events) {
  Status status = watched.connection->handle(events);
  if (watched.connection->stage() == Connection::Stage::introduced) adopt(watched);
  if (watched.peer < 0) {
    if (!status) log(Level::debug, "dropped a connection: " + status.error().message);
    settle(watched);
    return;
  }
  const bool dropped_early = !status && watched.connection->broke_in() == Connection::Stage::proving;
  if (dropped_early && watched.dials < kDials && !leaving_) {
    const auto& connections = peers_[watched.peer].connections;
    const auto at = std::ranges::find(connections, &watched, &std::unique_ptr<Watched>::get);
    status = dial(watched.peer, static_cast<std::size_t>(at - connections.begin()));
  }
  note(std::move(status));
  settle(watched);
  // What came here may have been for channels that are at home on another connection.
  if (const auto found = peers_.find(watched.peer); found != peers_.end() && found->second.paths.size() > 1)
    for (const auto& other : found->second.connections)
      if (other != nullptr) settle(*other);
}

// ---- Accepting
// --------------------------------------------------------------------------------------------------

void TcpTransport::accept_strangers() {
  for (Listener& listener : listeners_) {
    while (strangers_.size() < kMaxStrangers) {
      Address remote;
      Result<std::optional<Socket>> accepted = listener.try_accept(&remote);
      if (!accepted) {
        note(fail(accepted.error().code, "tcp: " + accepted.error().message, Scope::communicator));
        return;
      }
      if (!*accepted) break;
      auto stranger = std::make_unique<Watched>();
      stranger->connection = std::make_unique<Connection>(std::move(**accepted), remote, secret_);
      strangers_.push_back(std::move(stranger));
      settle(*strangers_.back());
    }
  }
  if (strangers_.size() < kMaxStrangers || !accepting_) return;
  accepting_ = false;  // the rest waits in the listeners' queues
  for (const Listener& listener : listeners_)
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.fd(), nullptr);
}

void TcpTransport::adopt(Watched& stranger) {
  const Hello& hello = stranger.connection->hello();
  const auto own = static_cast<std::uint32_t>(context_.rank);
  const int from = static_cast<int>(hello.from);
  const auto refuse = [&](const char* what) {
    log(Level::debug,
        "dropped a connection of " + stranger.connection->remote().text() + " that is " + what);
    stranger.connection->abandon();
  };
  if (hello.communicator != context_.communicator || hello.to != own || hello.from >= own)
    return refuse("meant for another rank or communicator");
  Peer& entry = peer_entry(from);
  const std::size_t path = stranger.connection->path();
  if (path >= entry.paths.size() || entry.connections[path] != nullptr)
    return refuse("of no path or of one in use");
  const auto at = std::ranges::find(strangers_, &stranger, &std::unique_ptr<Watched>::get);
  entry.connections[path] = std::move(*at);
  strangers_.erase(at);
  stranger.peer = from;
  stranger.connection->set_peer(describe(from));
  if (entry.paths.size() > 1) stranger.connection->share(&entry.all);
  if (leaving_)
    stranger.connection->leave(failure_ ? Connection::Last::committed : Connection::Last::begun);
  for (auto& [number, channel] : entry.channels) {
    if (static_cast<std::size_t>(number) % entry.paths.size() != path) continue;
    channel->carrier = &stranger;
    note(stranger.connection->add(*channel));
  }
  note(stranger.connection->admit());
}

void TcpTransport::drop_strangers() {
  const auto dropped =
      std::erase_if(strangers_, [now = Clock::now()](const std::unique_ptr<Watched>& stranger) {
        return stranger->connection->stage() == Connection::Stage::closed ||
               stranger->connection->greet_by() < now;
      });
  if (accepting_ || (dropped == 0 && strangers_.size() == kMaxStrangers)) return;
  accepting_ = true;
  for (const Listener& listener : listeners_) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.fd(), &event);
  }
}

// ---- The end
// ----------------------------------------------------------------------------------------------------

bool TcpTransport::all_left() {
  for (auto& [number, entry] : peers_) {
    for (const auto& watched : entry.connections)
      if (watched != nullptr && !watched->connection->left()) return false;
    for (const auto& [channel_number, channel] : entry.channels)
      if (channel->carrier == nullptr && failure_ && channel->committed(channel->taken)) return false;
  }
  return true;
}

TcpTransport::~TcpTransport() {
  if (process_ != ::getpid())
    return;  // closing a copy of a descriptor does not disturb the parent's connection
  const auto last = failure_ ? Connection::Last::committed : Connection::Last::begun;
  const Deadline deadline = deadline_in(failure_ ? kLingerMs : kLingerAfterFailureMs);
  leaving_ = true;
  for (auto& [number, entry] : peers_)
    for (auto& watched : entry.connections) {
      if (watched == nullptr) continue;
      watched->connection->leave(last);
      settle(*watched);
    }
  step(0);
  while (!all_left() && Clock::now() < deadline) step(1);
}

void TcpTransport::wait_descriptors(std::vector<int>* fds) const {
  if (epoll_) fds->push_back(epoll_.get());
}

std::vector<std::pair<std::string, std::string>> TcpTransport::facts() const {
  std::vector<std::pair<std::string, std::string>> facts;
  std::string text;
  for (std::uint32_t i = 0; i < offer_.count; ++i)
    text += (i == 0 ? "" : ", ") + to_text(offer_.addresses[i]);
  facts.emplace_back("listen", text.empty() ? trouble_.error().message : text);
  for (const auto& [peer, entry] : peers_) {
    text.clear();
    for (const Path& path : entry.paths) {
      const auto& low = offers_[static_cast<std::size_t>(std::min(peer, context_.rank))];
      const auto& high = offers_[static_cast<std::size_t>(std::max(peer, context_.rank))];
      text += (text.empty() ? "" : ", ") + to_text(low.addresses[path.low]) + " - " +
              to_text(high.addresses[path.high]);
      const auto& watched = entry.connections[static_cast<std::size_t>(&path - entry.paths.data())];
      if (watched != nullptr) text += " (" + std::to_string(watched->connection->carried()) + " bytes sent)";
    }
    facts.emplace_back("paths to rank " + std::to_string(peer), text);
  }
  return facts;
}

}  // namespace tamaki::tcp

namespace tamaki {

Result<std::unique_ptr<Transport>> open_tcp(const TransportContext& context) {
  if (context.secret.size() < 16)
    return fail(Code::internal, "tcp: a secret of " + std::to_string(context.secret.size()) +
                                    " bytes, at least 16 are needed");
  if (context.depth < 2 || !std::has_single_bit(context.depth) ||
      context.slot_bytes > (std::size_t{1} << 30))
    return fail(Code::internal, "tcp: rings of " + std::to_string(context.depth) + " slots of " +
                                    std::to_string(context.slot_bytes) +
                                    " bytes; the depth is a power of two from 2");
  return std::make_unique<tcp::TcpTransport>(context);
}

}  // namespace tamaki
