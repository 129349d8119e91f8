#pragma once
// Stream sockets whose every wait has a deadline, and the network interfaces of this host.
//
// All descriptors are non-blocking and close-on-exec, never raise SIGPIPE, and are closed by their owner's destructor.
// Errors: Code::timeout when a deadline passes, Code::peer_lost when the other end has closed, reset or does not exist,
// Code::invalid_argument for wrong text, Code::system or out_of_memory for what the operating system refuses.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tamaki {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// `timeout_ms` from now; negative: never.
Deadline deadline_in(std::int64_t timeout_ms);
/// Milliseconds until `deadline`, rounded up, for poll(): 0 when passed, at most 2^31-1; -1 for never.
int poll_timeout(Deadline deadline);

/// Owns a file descriptor (-1: none).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~FileDescriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// An IPv4 or IPv6 address with a port; a plain value. A default one is invalid (family AF_UNSPEC).
class Address {
 public:
  Address();
  Address(const sockaddr* address, socklen_t length);
  /// "10.1.2.3", "10.1.2.3:80", "fe80::1%eth0", "[::1]:80". Numbers only, no name lookup; the port is 0 if absent.
  static Result<Address> parse(std::string_view text);
  /// "host:port" with a name or number as host; all addresses of it, blocking lookup by the system's resolver.
  static Result<std::vector<Address>> resolve(const std::string& host_and_port);
  /// Any address of a family, port 0: what to bind for all interfaces.
  static Address any(int family);
  static Address loopback(int family);

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  bool valid() const { return family() == AF_INET || family() == AF_INET6; }
  std::uint16_t port() const;
  Address with_port(std::uint16_t port) const;
  bool is_loopback() const;
  bool is_link_local() const;
  /// "10.1.2.3:80" or "[fe80::1%2]:80"; without port where that is 0.
  std::string text() const;
  /// The address' bytes in network order: 4 or 16.
  std::span<const std::uint8_t> bytes() const;
  bool operator==(const Address& other) const;

  /// Fixed form that travels between hosts: family (4, 6 or 0), 0, port (network order), 16 address bytes. The scope
  /// of link-local addresses has no meaning elsewhere and is left out.
  static constexpr std::size_t kEncodedBytes = 20;
  std::array<std::byte, kEncodedBytes> encode() const;
  static std::optional<Address> decode(std::span<const std::byte, kEncodedBytes> bytes);

 private:
  sockaddr_storage storage_;
  socklen_t length_ = 0;
};

/// A connected stream socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(FileDescriptor fd) : fd_(std::move(fd)) {}
  /// Starts connecting and returns at once; finished when finish_connect() says so. `local`: source address to bind
  /// (port 0: any), or null.
  static Result<Socket> start_connect(const Address& peer, const Address* local = nullptr);
  /// After the descriptor became writable: true once connected, false if still under way, or the failure.
  Result<bool> finish_connect(const Address& peer);
  /// Connects, or fails by `deadline`.
  static Result<Socket> connect(const Address& peer, Deadline deadline, const Address* local = nullptr);

  /// Sends or receives exactly `data.size()` bytes, or fails by `deadline`.
  Status send(std::span<const std::byte> data, Deadline deadline);
  Status receive(std::span<std::byte> data, Deadline deadline);
  /// What can be moved without blocking: the number of bytes, 0 when it would block. End of stream is peer_lost.
  Result<std::size_t> send_some(std::span<const std::byte> data);
  Result<std::size_t> receive_some(std::span<std::byte> data);

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  FileDescriptor release() { return std::move(fd_); }
  Result<Address> local_address() const;
  Result<Address> peer_address() const;
  /// Finds out about hosts that vanish without a word: keep-alive probes after `idle_s` seconds of silence, and data
  /// that is not acknowledged for three times as long ends the connection.
  Status watch_peer(int idle_s);
  /// No more data will be sent; what was sent before still arrives.
  void shutdown_send();

 private:
  FileDescriptor fd_;
};

class Listener {
 public:
  Listener() = default;
  /// Binds and listens. Port 0: one that the system chooses. An IPv6 wildcard takes IPv4 too.
  static Result<Listener> open(const Address& address, int backlog = 1024);
  /// Next connection, or a failure by `deadline`.
  Result<Socket> accept(Deadline deadline, Address* peer = nullptr);
  /// Next connection, or nothing if none waits. Connections that died while waiting are skipped.
  Result<std::optional<Socket>> try_accept(Address* peer = nullptr);
  const Address& address() const { return address_; }
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

 private:
  FileDescriptor fd_;
  Address address_;
};

/// Waits until `fd` has one of `events` (POLLIN, POLLOUT) or an error. Code::timeout by `deadline`.
Status wait_for(int fd, short events, Deadline deadline, std::string_view what);

// ---- Interfaces -------------------------------------------------------------------------------------------------

/// One address of one network interface that is up.
struct Interface {
  std::string name;
  Address address;        // port 0
  int prefix_bits = 0;    // length of the network's prefix
  bool loopback = false;  // an address that means this host to every host
  int index = 0;          // of the interface, as in /sys/class/net/*/ifindex
};

/// All addresses of all interfaces that are up, in the system's order, IPv4 before IPv6. Link-local ones are left out:
/// they mean nothing to another host.
Result<std::vector<Interface>> list_interfaces();

/// Those of `all` that `rule` chooses, in the order of the rule. A rule is a comma-separated list of
///   eth0         that interface            10.0.0.0/8   addresses in that network (CIDR), 10.1.2.3: that address
///   ^docker0     not that interface        ^10.0.0.0/8  not that network
/// Only exclusions: everything else. Empty: everything but loopback and the bridges of containers and virtual machines
/// (docker*, br-*, veth*, cni*, flannel*, virbr*, lxcbr*, podman*), or if nothing is left, those bridges' and then
/// loopback addresses. A name or network that matches nothing is an error that lists what exists.
Result<std::vector<Interface>> choose_interfaces(std::span<const Interface> all, std::string_view rule);

/// choose_interfaces(list_interfaces(), TAMAKI_INTERFACES).
Result<std::vector<Interface>> chosen_interfaces();

}  // namespace tamaki
