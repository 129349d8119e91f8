#include "transports/tcp/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <linux/sockios.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tamaki::tcp {
namespace {

/// Bytes that a socket may hold unsent where a peer has several: few, so that a slow one soon takes no more.
constexpr int kUnsentBytes = 64 << 10;
constexpr int kGreetingMs = 10'000;  // an accepted connection introduces itself within

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

std::string quoted(std::uint32_t value, const char* what) {
  return std::string(what) + " " + std::to_string(value);
}

/// Finds out about hosts that vanish without a word while nothing is under way. No TCP_USER_TIMEOUT: it
/// would also end the connection to a living rank that computes for longer than that while its socket is
/// full; a wait for a rank that does not answer is bounded by the deadline of the operation.
void keep_alive(int fd) {
  const int on = 1, idle_s = 10, interval_s = 5, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

Connection::Connection(Dialled dialled)
    : socket_(std::move(dialled.socket)),
      remote_(dialled.remote),
      stage_(Stage::dialling),
      peer_(std::move(dialled.peer)),
      handshake_(Handshake::Role::dialled, dialled.secret),
      greet_by_(Deadline::max()),
      hello_(dialled.hello),
      path_(dialled.path),
      hello_due_(true) {
  keep_alive(fd());
}

Connection::Connection(Socket socket, const Address& remote, std::span<const std::byte> secret)
    : socket_(std::move(socket)),
      remote_(remote),
      stage_(Stage::proving),
      peer_("a stranger"),
      handshake_(Handshake::Role::accepted, secret),
      greet_by_(deadline_in(kGreetingMs)) {
  keep_alive(fd());
}

Status Connection::broken(Code code, const std::string& what) {
  broke_in_ = stage_;
  stage_ = Stage::closed;
  socket_.close();
  return fail(code, "tcp: " + peer_ + " at " + remote_.text() + ": " + what, Scope::communicator);
}

void Connection::abandon() {
  stage_ = Stage::closed;
  socket_.close();
}

std::uint32_t Connection::interest() const {
  switch (stage_) {
    case Stage::dialling:
      return EPOLLOUT;
    case Stage::proving:
      return EPOLLIN | (handshake_.outgoing().empty() ? 0u : EPOLLOUT);
    case Stage::greeting:
      return EPOLLIN;
    case Stage::introduced:
      return 0;
    case Stage::ready:
      return EPOLLIN | (blocked_ ? EPOLLOUT : 0u);
    case Stage::closed:
      break;
  }
  return 0;
}

Status Connection::add(Channel& channel) {
  const auto number = static_cast<std::size_t>(channel.link.channel);
  if (number >= channels_.size()) channels_.resize(number + 1, nullptr);
  channels_[number] = &channel;
  channel.home = this;
  active_.reserve(channels_.size());  // so that the data path never grows it
  if (stage_ == Stage::closed) return broken(Code::peer_lost, "has left the communicator");
  activate(channel);
  if (number < announced_.size() && announced_[number].depth != 0)
    if (Status status = opened(channel, announced_[number]); !status) return status;
  return send();
}

void Connection::share(const std::vector<Channel*>* all) {
  shared_ = all;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
}

void Connection::activate(Channel& channel) {
  if (channel.active) return;
  channel.active = true;
  active_.push_back(&channel);
}

Status Connection::handle(std::uint32_t events) {
  if (stage_ == Stage::dialling) {
    const Result<bool> connected = socket_.finish_connect(remote_);
    if (!connected) return broken(connected.error().code, connected.error().message);
    if (!*connected) return {};
    stage_ = Stage::proving;
  }
  if (stage_ == Stage::proving) {
    if (Status status = prove(); !status || stage_ == Stage::proving) return status;
  }
  if (stage_ == Stage::closed) return {};
  if ((events & EPOLLOUT) != 0) blocked_ = false;
  if ((events & ~EPOLLOUT) != 0)
    if (Status status = receive(); !status) return status;
  return stage_ == Stage::ready ? send() : Status();
}

// Nothing but the bytes of the handshake is read before it is over: what follows stays in the socket.
Status Connection::prove() {
  while (!handshake_.done()) {
    if (!handshake_.outgoing().empty()) {
      const Result<std::size_t> sent = socket_.send_some(handshake_.outgoing());
      if (!sent)
        return broken(sent.error().code,
                      "while it was to prove that it belongs to the job: " + sent.error().message);
      if (*sent == 0) return {};
      handshake_.sent(*sent);
      continue;
    }
    const Result<std::size_t> got = socket_.receive_some(handshake_.room());
    if (!got)
      return broken(got.error().code,
                    "while it was to prove that it belongs to the job: " + got.error().message);
    if (*got == 0) return {};
    if (Status status = handshake_.received(*got); !status)
      return broken(status.error().code, status.error().message);
  }
  stage_ = hello_due_ ? Stage::ready : Stage::greeting;
  return {};
}

// ---- Sending
// ----------------------------------------------------------------------------------------------------

bool Connection::add_frame(FrameKind kind, Channel* channel) {
  if (batched_ == kBatch) return false;
  Outgoing& out = batch_[batched_++];
  out = {};
  out.frame.kind = static_cast<std::uint16_t>(kind);
  if (channel == nullptr) return true;
  out.frame.channel = static_cast<std::uint16_t>(channel->link.channel);
  out.frame.consumed = channel->told = channel->consumed();
  return true;
}

Result<bool> Connection::add_message(Channel& channel) {
  if (batched_ == kBatch || !channel.committed(channel.taken) || !channel.granted(channel.taken)) return false;
  const SlotHeader& slot = *channel.departing.header(channel.taken);
  if (slot.kind != MessageKind::slot || slot.bytes > channel.link.slot_bytes)
    return pass(broken(Code::internal, "a message of kind " + std::to_string(static_cast<int>(slot.kind)) + " and " +
                                           std::to_string(slot.bytes) + " bytes was committed to a link with slots of " +
                                           std::to_string(channel.link.slot_bytes) + " bytes"));
  add_frame(FrameKind::data, &channel);
  Outgoing& out = batch_[batched_ - 1];
  out.frame.sequence = channel.taken;
  out.frame.tag = static_cast<std::uint32_t>(slot.flag.load(std::memory_order_relaxed) >> 32);
  out.frame.bytes = slot.bytes;
  out.channel = &channel;
  out.payload = channel.departing.slot(channel.taken) + kLine;
  ++channel.taken;
  carried_ += slot.bytes;
  return true;
}

Status Connection::fill_batch() {
  batched_ = first_ = first_at_ = 0;
  if (goodbye_sent_) return {};
  if (hello_due_ && add_frame(FrameKind::hello, nullptr)) {
    hello_due_ = false;
    batch_[0].frame.tag = path_;
    batch_[0].frame.bytes = sizeof hello_;
    batch_[0].payload = reinterpret_cast<const std::byte*>(&hello_);
  }
  for (Channel* channel : active_) {
    if (!channel->open_due || !add_frame(FrameKind::open, channel)) continue;
    channel->open_due = false;
    batch_[batched_ - 1].frame.sequence = channel->depth();
    batch_[batched_ - 1].frame.bytes = static_cast<std::uint32_t>(channel->link.slot_bytes);
  }
  const bool data_wanted = !leaving_ || last_ == Last::committed;
  for (bool found = data_wanted; found && batched_ < kBatch;) {
    found = false;
    for (std::size_t i = 0; i < active_.size() && batched_ < kBatch; ++i) {
      const Result<bool> added = add_message(*active_[(turn_ + i) % active_.size()]);
      if (!added) return tl::unexpected<Error>(added.error());
      found |= *added;
    }
  }
  if (shared_ != nullptr && data_wanted && !leaving_)
    for (Channel* channel : *shared_)
      while (channel->home != nullptr && channel->home != this && channel->home->blocked()) {
        const Result<bool> added = add_message(*channel);
        if (!added) return tl::unexpected<Error>(added.error());
        if (*added) continue;
        if (channel->peer_open && channel->consumed() - channel->told > channel->depth() / 2 - 1) add_frame(FrameKind::credit, channel);
        break;
      }
  ++turn_;
  // Credits travel with data where there is some, and by themselves once half a ring is waiting to be told.
  bool waiting = false;
  std::erase_if(active_, [&](Channel* channel) {
    if (channel->consumed() - channel->told > channel->depth() / 2 - 1)
      add_frame(FrameKind::credit, channel);
    const bool to_send = channel->open_due || (data_wanted && channel->committed(channel->taken));
    waiting |= to_send;
    channel->active = to_send || channel->told != channel->received;
    return !channel->active;
  });
  if (leaving_ && !waiting && add_frame(FrameKind::goodbye, nullptr)) goodbye_sent_ = true;
  return {};
}

void Connection::batch_sent(std::size_t bytes) {
  while (first_ < batched_) {
    Outgoing& out = batch_[first_];
    const std::size_t left = kFrameBytes + (out.payload != nullptr ? out.frame.bytes : 0) - first_at_;
    if (bytes < left) {
      first_at_ += bytes;
      return;
    }
    bytes -= left;
    first_at_ = 0;
    ++first_;
    if (out.channel != nullptr) out.channel->handed_over(out.frame.sequence);
  }
  batched_ = first_ = 0;
  if (goodbye_sent_) socket_.shutdown_send();
}

Status Connection::send() {
  if (stage_ == Stage::closed) return leave_behind();
  while (stage_ == Stage::ready && !blocked_ && !write_dead_) {
    if (batched_ == 0) {
      if (Status status = fill_batch(); !status) return status;
      if (batched_ == 0) return {};
    }
    std::array<iovec, 2 * kBatch> parts;
    std::size_t count = 0;
    std::size_t skip = first_at_;
    const auto part = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped,
                          bytes - skipped};
    };
    for (std::size_t i = first_; i < batched_; ++i) {
      part(&batch_[i].frame, kFrameBytes);
      if (batch_[i].payload != nullptr) part(batch_[i].payload, batch_[i].frame.bytes);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      batch_sent(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      blocked_ = true;
    } else if (is_gone(errno)) {
      // What the peer sent before it went, its goodbye perhaps, is still to be read: receive() has the last
      // word.
      write_dead_ = true;
      return receive();
    } else if (errno != EINTR) {
      return broken(Code::peer_lost, std::string("sending: ") + std::strerror(errno));
    }
  }
  return {};
}

// ---- Receiving
// --------------------------------------------------------------------------------------------------

Status Connection::end_of_stream(int error) {
  if (!goodbye_received_) {
    const std::string how = error == 0 ? "closed the connection without a goodbye" : std::strerror(error);
    return broken(Code::peer_lost, how + " (the rank has ended or its host is unreachable)");
  }
  stage_ = Stage::closed;
  socket_.close();
  return leave_behind();
}

// Nothing but messages to the peer can be missed now; credits for it are of no use any more.
Status Connection::leave_behind() {
  const bool unsent =
      std::ranges::any_of(active_, [](Channel* c) { return c->committed(c->departing.next); });
  for (Channel* channel : active_) channel->active = false;
  active_.clear();
  batched_ = 0;
  if (unsent && !leaving_)
    return broken(Code::peer_lost, "has left the communicator before it took the messages sent to it");
  return {};
}

Status Connection::receive() {
  for (int i = 0; i < kReadsAtOnce && stage_ != Stage::closed && stage_ != Stage::introduced; ++i) {
    std::array<iovec, 2> parts;
    int count = 0;
    std::size_t left = 0;
    if (receiver_ != nullptr) {
      left = incoming_.bytes - payload_at_;
      parts[static_cast<std::size_t>(count++)] = {receiver_->place_for(incoming_.sequence) + payload_at_, left};
    }
    const std::size_t wanted = left + kStaging - staged_;
    parts[static_cast<std::size_t>(count++)] = {staging_.data() + staged_, kStaging - staged_};
    const ssize_t got = ::readv(fd(), parts.data(), count);
    if (got == 0) return end_of_stream(0);
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (errno == EINTR) continue;
      return end_of_stream(errno);
    }
    auto bytes = static_cast<std::size_t>(got);
    if (receiver_ != nullptr) {
      const std::size_t taken = std::min(bytes, left);
      payload_at_ += taken;
      bytes -= taken;
      if (payload_at_ == incoming_.bytes) deliver();
    }
    staged_ += bytes;
    if (Status status = parse(); !status) return status;
    if (static_cast<std::size_t>(got) < wanted) return {};  // epoll tells when there is more
  }
  return {};
}

Status Connection::parse() {
  std::size_t at = 0;
  while (receiver_ == nullptr && stage_ != Stage::introduced && staged_ - at >= kFrameBytes) {
    Frame frame;
    std::memcpy(&frame, staging_.data() + at, kFrameBytes);
    const bool hello = frame.magic == kMagic && frame.kind == static_cast<std::uint16_t>(FrameKind::hello);
    if (hello && staged_ - at < kFrameBytes + sizeof(Hello)) break;
    at += kFrameBytes;
    if (hello) {
      std::memcpy(&hello_, staging_.data() + at, sizeof hello_);
      at += sizeof hello_;
    }
    if (Status status = accept_frame(frame); !status) return status;
    if (receiver_ == nullptr) continue;
    const std::size_t taken = std::min<std::size_t>(staged_ - at, frame.bytes);
    std::memcpy(receiver_->place_for(incoming_.sequence), staging_.data() + at, taken);
    at += taken;
    payload_at_ = taken;
    if (payload_at_ == frame.bytes) deliver();
  }
  std::memmove(staging_.data(), staging_.data() + at, staged_ - at);
  staged_ -= at;
  return {};
}

Status Connection::accept_hello(const Frame& frame) {
  if (stage_ != Stage::greeting || frame.bytes != sizeof hello_)
    return broken(Code::peer_lost, "sent a hello frame out of place");
  path_ = frame.tag;
  stage_ = Stage::introduced;
  return {};
}

Status Connection::admit() {
  stage_ = Stage::ready;
  if (Status status = parse(); !status) return status;  // what came with the hello frame
  return send();
}

Status Connection::accept_frame(const Frame& frame) {
  if (frame.magic != kMagic || goodbye_received_)
    return broken(Code::peer_lost, goodbye_received_ ? "sent more after its goodbye"
                                                     : "sent what is no frame of this version");
  const auto kind = static_cast<FrameKind>(frame.kind);
  if (kind == FrameKind::hello) return accept_hello(frame);
  if (stage_ != Stage::ready) return broken(Code::peer_lost, "did not introduce itself");
  if (kind == FrameKind::goodbye) {
    goodbye_received_ = true;
    return {};
  }
  const std::size_t number = frame.channel;
  if (number >= kMaxChannels)
    return broken(Code::peer_lost, quoted(frame.channel, "sent a frame for channel"));
  Channel* channel = number < channels_.size() ? channels_[number] : nullptr;
  if (kind == FrameKind::open) {
    if (number >= announced_.size()) announced_.resize(number + 1);
    announced_[number] = {.slot_bytes = frame.bytes, .depth = frame.sequence};
    return channel != nullptr ? opened(*channel, announced_[number]) : Status();
  }
  if (channel == nullptr && shared_ != nullptr) {  // at home elsewhere
    const auto found = std::ranges::find_if(*shared_, [&](const Channel* c) { return c->link.channel == frame.channel; });
    if (found != shared_->end()) channel = *found;
  }
  // On another connection than the channel's home, data may overtake the open frame.
  if (channel == nullptr || (!channel->peer_open && channel->home == this) || (kind != FrameKind::data && kind != FrameKind::credit))
    return broken(Code::peer_lost, quoted(frame.kind, "sent a frame of kind") + " for channel " +
                                       std::to_string(number) + ", which is not open");
  // Credits that took different connections may overtake each other: an old one says nothing new.
  const auto news = static_cast<std::int32_t>(frame.consumed - channel->peer_consumed);
  if (news > static_cast<std::int32_t>(channel->taken - 1 - channel->peer_consumed) || (news < 0 && shared_ == nullptr))
    return broken(Code::peer_lost, quoted(frame.consumed, "claims to have consumed message") +
                                       " of channel " + std::to_string(number) + ", only " +
                                       std::to_string(channel->taken - 1) + " were sent");
  if (news > 0) channel->peer_consumed = frame.consumed;
  return kind == FrameKind::data ? accept_data(frame, channel) : Status();
}

Status Connection::opened(Channel& channel, const Geometry& peer) {
  if (peer.slot_bytes != channel.link.slot_bytes || peer.depth != channel.depth())
    return broken(Code::mismatch, "has rings of " + std::to_string(peer.depth) + " slots of " +
                                      std::to_string(peer.slot_bytes) + " bytes, here they are " +
                                      std::to_string(channel.depth()) + " of " +
                                      std::to_string(channel.link.slot_bytes));
  channel.peer_open = true;
  channel.link.open = true;
  return {};
}

Status Connection::accept_data(const Frame& frame, Channel* channel) {
  const bool fits = frame.bytes <= channel->link.slot_bytes;
  if (!fits || !channel->expects(frame.sequence) || (shared_ == nullptr && frame.sequence != channel->received + 1))
    return broken(Code::peer_lost, quoted(frame.sequence, "sent message") + " of " + std::to_string(frame.bytes) +
                                       " bytes on channel " + std::to_string(frame.channel) + " where message " +
                                       std::to_string(channel->received + 1) + " of at most " +
                                       std::to_string(channel->link.slot_bytes) + " bytes was due" +
                                       (channel->received - channel->consumed() < channel->depth() ? "" : " and the ring is full"));
  incoming_ = frame;
  receiver_ = channel;
  payload_at_ = 0;
  return {};
}

void Connection::deliver() {
  receiver_->deliver(incoming_.sequence, incoming_.tag, incoming_.bytes);
  if (receiver_->home != nullptr) receiver_->home->activate(*receiver_);  // its credit will be due
  receiver_ = nullptr;
}

// ---- Leaving
// ----------------------------------------------------------------------------------------------------

void Connection::leave(Last last) {
  leaving_ = true;
  last_ = last;
  for (Channel* channel : channels_)
    if (channel != nullptr) activate(*channel);
}

bool Connection::left() const {
  if (stage_ == Stage::closed || write_dead_) return true;
  if (stage_ != Stage::ready) {
    // Not connected yet: only worth waiting for if messages are to go.
    return last_ == Last::begun || std::ranges::none_of(channels_, [](Channel* c) {
             return c != nullptr && c->committed(c->taken);
           });
  }
  if (!goodbye_sent_ || batched_ != 0) return false;
  // Closing while data is under way could answer a late credit frame with a reset that destroys it. What
  // the peer's system has acknowledged, it keeps for the peer.
  int unacknowledged = 0;
  return ::ioctl(fd(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace tamaki::tcp
