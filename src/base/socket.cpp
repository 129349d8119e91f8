#include "base/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

namespace tamaki {
namespace {

bool peer_is_gone(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == ECONNABORTED ||
         error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN || error == ETIMEDOUT ||
         error == ENETDOWN;
}

tl::unexpected<Error> socket_error(const std::string& what, int error) {
  errno = error;
  tl::unexpected<Error> failed = fail_errno(what, Scope::connection);
  if (peer_is_gone(error)) failed.value().code = Code::peer_lost;
  return failed;
}

Result<FileDescriptor> new_socket(int family) {
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return socket_error("socket", errno);
  return fd;
}

void set_no_delay(int fd) {
  const int on = 1;
  // Only fails on sockets that are not TCP, where there is nothing to switch off.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole) {
  unsigned port = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || r.ec != std::errc{} || r.ptr != text.data() + text.size() || port > 65535)
    return fail(Code::invalid_argument,
                "\"" + std::string(text) + "\" in \"" + std::string(whole) + "\" is not a port 0..65535");
  return static_cast<std::uint16_t>(port);
}

/// Splits "host:port", "[v6]:port", "v6", "host". The port's text is empty where there is none.
std::pair<std::string_view, std::string_view> split_port(std::string_view text) {
  if (!text.empty() && text.front() == '[') {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return {text, {}};
    std::string_view port = text.substr(end + 1);
    if (!port.empty() && port.front() == ':') port.remove_prefix(1);
    return {text.substr(1, end - 1), port};
  }
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

Deadline deadline_in(std::int64_t timeout_ms) {
  return timeout_ms < 0 ? Deadline::max() : Clock::now() + std::chrono::milliseconds(timeout_ms);
}

int poll_timeout(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left = deadline - Clock::now();
  if (left <= left.zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

void FileDescriptor::reset(int fd) {
  const int saved = errno;  // destructors run between a failing call and the report of its errno
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  errno = saved;
}

// ---- Address ----------------------------------------------------------------------------------------------------

Address::Address() { std::memset(&storage_, 0, sizeof storage_); }

Address::Address(const sockaddr* address, socklen_t length) : Address() {
  length_ = std::min<socklen_t>(length, sizeof storage_);
  std::memcpy(&storage_, address, length_);
  if (family() != AF_INET6) return;
  // ::ffff:a.b.c.d is how a dual-stack listener sees IPv4: one form for one address.
  const auto* six = reinterpret_cast<const sockaddr_in6*>(&storage_);
  if (!IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six->sin6_port;
  std::memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, 4);
  std::memset(&storage_, 0, sizeof storage_);
  std::memcpy(&storage_, &four, sizeof four);
  length_ = sizeof four;
}

Result<Address> Address::parse(std::string_view text) {
  const auto [host, port_text] = split_port(text);
  std::uint16_t port = 0;
  if (!port_text.empty()) {
    const Result<std::uint16_t> parsed = parse_port(port_text, text);
    if (!parsed) return tl::unexpected<Error>(parsed.error());
    port = *parsed;
  }
  in6_addr exact{};  // getaddrinfo() alone would take "10.1" for 10.0.0.1
  const std::string host_text(host);
  if (host.find('%') == std::string_view::npos && ::inet_pton(AF_INET, host_text.c_str(), &exact) != 1 &&
      ::inet_pton(AF_INET6, host_text.c_str(), &exact) != 1)
    return fail(Code::invalid_argument, "\"" + std::string(text) + "\" is not an IPv4 or IPv6 address");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host_text.c_str(), nullptr, &hints, &found) != 0)
    return fail(Code::invalid_argument, "\"" + std::string(text) + "\" is not an IPv4 or IPv6 address");
  const Address address(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address.with_port(port);
}

Result<std::vector<Address>> Address::resolve(const std::string& host_and_port) {
  const auto [host, port_text] = split_port(host_and_port);
  const Result<std::uint16_t> port = parse_port(port_text, host_and_port);
  if (!port) return tl::unexpected<Error>(port.error());
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(std::string(host).c_str(), nullptr, &hints, &found);
  if (code != 0)
    return fail(Code::system, "the name \"" + std::string(host) + "\" has no address: " + ::gai_strerror(code));
  std::vector<Address> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next)
    addresses.push_back(Address(a->ai_addr, a->ai_addrlen).with_port(*port));
  ::freeaddrinfo(found);
  return addresses;
}

Address Address::any(int family) {
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  return family == AF_INET6 ? Address(reinterpret_cast<const sockaddr*>(&six), sizeof six)
                            : Address(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

Address Address::loopback(int family) {
  Address address = any(family);
  if (family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address.storage_)->sin6_addr = in6addr_loopback;
  else
    reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::uint16_t Address::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return family() == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port) : std::uint16_t{0};
}

Address Address::with_port(std::uint16_t port) const {
  Address changed = *this;
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&changed.storage_)->sin6_port = htons(port);
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&changed.storage_)->sin_port = htons(port);
  return changed;
}

std::span<const std::uint8_t> Address::bytes() const {
  if (family() == AF_INET6) return {reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr.s6_addr, 16};
  if (family() != AF_INET) return {};
  return {reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr), 4};
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return bytes()[0] == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool Address::is_link_local() const {
  if (family() == AF_INET) return bytes()[0] == 169 && bytes()[1] == 254;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

std::string Address::text() const {
  if (!valid()) return "no address";
  char host[INET6_ADDRSTRLEN + 1] = "";
  ::inet_ntop(family(), bytes().data(), host, sizeof host);
  std::string out = host;
  if (family() == AF_INET6) {
    const auto scope = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_scope_id;
    if (scope != 0) out += "%" + std::to_string(scope);
  }
  if (port() == 0) return out;
  return (family() == AF_INET6 ? "[" + out + "]" : out) + ":" + std::to_string(port());
}

bool Address::operator==(const Address& other) const {
  return family() == other.family() && port() == other.port() && std::ranges::equal(bytes(), other.bytes());
}

std::array<std::byte, Address::kEncodedBytes> Address::encode() const {
  std::array<std::byte, kEncodedBytes> out{};
  out[0] = static_cast<std::byte>(family() == AF_INET ? 4 : family() == AF_INET6 ? 6 : 0);
  out[2] = static_cast<std::byte>(port() >> 8);
  out[3] = static_cast<std::byte>(port() & 0xff);
  if (valid()) std::memcpy(out.data() + 4, bytes().data(), bytes().size());
  return out;
}

std::optional<Address> Address::decode(std::span<const std::byte, kEncodedBytes> bytes) {
  const int kind = static_cast<int>(bytes[0]);
  if (kind != 4 && kind != 6) return std::nullopt;
  Address address = any(kind == 6 ? AF_INET6 : AF_INET);
  void* to = kind == 6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&address.storage_)->sin6_addr)
                       : static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_addr);
  std::memcpy(to, bytes.data() + 4, kind == 6 ? 16 : 4);
  return address.with_port(
      static_cast<std::uint16_t>(static_cast<unsigned>(bytes[2]) << 8 | static_cast<unsigned>(bytes[3])));
}

// ---- Socket -----------------------------------------------------------------------------------------------------

Status wait_for(int fd, short events, Deadline deadline, std::string_view what) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return {};  // errors and hang-ups too: the call that follows says which
    if (ready == 0 && Clock::now() >= deadline)
      return fail(Code::timeout, std::string(what) + ": nothing by the deadline", Scope::connection);
    if (ready < 0 && errno != EINTR) return socket_error("poll", errno);
  }
}

Result<Socket> Socket::start_connect(const Address& peer, const Address* local) {
  if (!peer.valid()) return fail(Code::invalid_argument, "connect: no address given", Scope::connection);
  Result<FileDescriptor> fd = new_socket(peer.family());
  if (!fd) return pass(std::move(fd));
  if (local != nullptr) {
    // The port is chosen by connect(), not here, so that many connections from one address do not run out of ports.
    const int on = 1;
    ::setsockopt(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(fd->get(), local->data(), local->length()) != 0)
      return socket_error("bind to " + local->text() + " for a connection to " + peer.text(), errno);
  }
  set_no_delay(fd->get());
  int result;
  do result = ::connect(fd->get(), peer.data(), peer.length());
  while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EINPROGRESS && errno != EALREADY && errno != EISCONN)
    return socket_error("connect to " + peer.text(), errno);
  return Socket(std::move(*fd));
}

Result<bool> Socket::finish_connect(const Address& peer) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return socket_error("connect to " + peer.text(), error);
  const Result<Address> remote = peer_address();
  if (!remote) return false;
  // A connection to a free port of this host may by chance get that very port as its own and so reach itself.
  const Result<Address> own = local_address();
  if (own && *own == *remote) return socket_error("connect to " + peer.text(), ECONNREFUSED);
  return true;
}

Result<Socket> Socket::connect(const Address& peer, Deadline deadline, const Address* local) {
  Result<Socket> socket = start_connect(peer, local);
  if (!socket) return socket;
  while (true) {
    if (Status status = wait_for(socket->fd(), POLLOUT, deadline, "connect to " + peer.text()); !status)
      return pass(std::move(status));
    Result<bool> connected = socket->finish_connect(peer);
    if (!connected) return pass(std::move(connected));
    if (*connected) return socket;
  }
}

Result<std::size_t> Socket::send_some(std::span<const std::byte> data) {
  while (true) {
    const ssize_t n = ::send(fd(), data.data(), data.size(), MSG_NOSIGNAL);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return socket_error("send", errno);
  }
}

Result<std::size_t> Socket::receive_some(std::span<std::byte> data) {
  if (data.empty()) return std::size_t{0};
  while (true) {
    const ssize_t n = ::recv(fd(), data.data(), data.size(), 0);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return fail(Code::peer_lost, "the other end closed the connection", Scope::connection);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return socket_error("receive", errno);
  }
}

Status Socket::send(std::span<const std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    Result<std::size_t> sent = send_some(data);
    if (!sent) return pass(std::move(sent));
    data = data.subspan(*sent);
    if (*sent != 0 && Clock::now() < deadline) continue;
    if (data.empty()) break;
    if (Status status = wait_for(fd(), POLLOUT, deadline, "send"); !status) return status;
  }
  return {};
}

Status Socket::receive(std::span<std::byte> data, Deadline deadline) {
  while (!data.empty()) {
    Result<std::size_t> got = receive_some(data);
    if (!got) return pass(std::move(got));
    data = data.subspan(*got);
    // A peer that sends a byte at a time must not outlast the deadline either.
    if (data.empty()) break;
    if (*got != 0 && Clock::now() < deadline) continue;
    if (Clock::now() >= deadline) return fail(Code::timeout, "receive: nothing by the deadline", Scope::connection);
    if (Status status = wait_for(fd(), POLLIN, deadline, "receive"); !status) return status;
  }
  return {};
}

Result<Address> Socket::local_address() const {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return socket_error("getsockname", errno);
  return Address(reinterpret_cast<const sockaddr*>(&storage), length);
}

Result<Address> Socket::peer_address() const {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(fd(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return socket_error("getpeername", errno);
  return Address(reinterpret_cast<const sockaddr*>(&storage), length);
}

Status Socket::watch_peer(int idle_s) {
  const int on = 1, interval = std::max(1, idle_s / 2), probes = 4;
  const unsigned give_up_ms = static_cast<unsigned>(idle_s) * 3000u;
  if (::setsockopt(fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0 ||
      ::setsockopt(fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) != 0 ||
      ::setsockopt(fd(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval) != 0 ||
      ::setsockopt(fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) != 0 ||
      ::setsockopt(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof give_up_ms) != 0)
    return socket_error("keep-alive of " + std::to_string(idle_s) + " s", errno);
  return {};
}

void Socket::shutdown_send() { ::shutdown(fd(), SHUT_WR); }

// ---- Listener ---------------------------------------------------------------------------------------------------

Result<Listener> Listener::open(const Address& address, int backlog) {
  if (!address.valid()) return fail(Code::invalid_argument, "listen: no address given", Scope::connection);
  Result<FileDescriptor> fd = new_socket(address.family());
  if (!fd) return pass(std::move(fd));
  const int on = 1, off = 0;
  ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd->get(), address.data(), address.length()) != 0) return socket_error("bind to " + address.text(), errno);
  if (::listen(fd->get(), backlog) != 0) return socket_error("listen on " + address.text(), errno);
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return socket_error("getsockname", errno);
  Listener listener;
  listener.fd_ = std::move(*fd);
  listener.address_ = Address(reinterpret_cast<const sockaddr*>(&storage), length);
  return listener;
}

Result<std::optional<Socket>> Listener::try_accept(Address* peer) {
  while (true) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    FileDescriptor fd(
        ::accept4(this->fd(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      set_no_delay(fd.get());
      if (peer != nullptr) *peer = Address(reinterpret_cast<const sockaddr*>(&storage), length);
      return std::optional<Socket>(Socket(std::move(fd)));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Socket>();
    // Errors of the connection that waited, not of the listener (accept(2)).
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN || errno == EHOSTDOWN ||
        errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENOPROTOOPT || errno == EPERM)
      continue;
    return socket_error("accept on " + address_.text(), errno);
  }
}

Result<Socket> Listener::accept(Deadline deadline, Address* peer) {
  while (true) {
    Result<std::optional<Socket>> next = try_accept(peer);
    if (!next) return pass(std::move(next));
    if (*next) return std::move(**next);
    if (Status status = wait_for(fd(), POLLIN, deadline, "accept on " + address_.text()); !status)
      return pass(std::move(status));
  }
}

}  // namespace tamaki
