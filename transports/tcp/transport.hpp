#pragma once
// Ranks that reach each other over IP: rings local to each process, and connections that carry what is
// committed to them. progress() moves bytes; nothing here blocks but the destructor, for a bounded time.
//
// Words: an *address* is what a rank listens on, a *path* a pair of addresses of two ranks, a *connection*
// the socket of one path; those of a pair are made when a channel first needs one. Channel c of two ranks is at home on
// path c mod (number of paths); while that takes no more, the others help. The lower rank dials, the higher one accepts.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/socket.hpp"
#include "transports/tcp/channel.hpp"
#include "transports/tcp/connection.hpp"
#include "transports/tcp/paths.hpp"
#include "transports/transport.hpp"

namespace tamaki::tcp {

class TcpTransport final : public Transport {
 public:
  /// Chooses interfaces (TAMAKI_INTERFACES) and listens on each. What goes wrong is kept for setup() to
  /// say, so that the other ranks hear of it too.
  explicit TcpTransport(const TransportContext& context);
  /// What was committed still reaches the peers that are there, within kLingerMs.
  ~TcpTransport() override;

  std::string_view name() const override { return "tcp"; }
  Status setup(const Exchange& exchange) override;
  bool reaches(int peer, std::string* why = nullptr) const override;
  Result<Link*> connect(int peer, int channel) override;
  Status progress() override;
  LinkEnd end_of(const Link& link) const override;
  void flush(Link& link) override;
  void wait_descriptors(std::vector<int>* fds) const override;
  /// "listen": addresses; "paths to rank N": the connections made so far.
  std::vector<std::pair<std::string, std::string>> facts() const override;

 private:
  /// Time that the destructor gives to data under way; after a failure only for an orderly goodbye.
  static constexpr int kLingerMs = 5000;
  static constexpr int kLingerAfterFailureMs = 200;
  /// Accepted connections that may be waiting to prove themselves; more stay in the listener's queue.
  static constexpr std::size_t kMaxStrangers = 256;
  /// A dialled connection that the peer drops before it is established is dialled again: the peer may have
  /// been away for longer than it gives to strangers.
  static constexpr int kDials = 3;
  /// With so few connections, reading them directly is cheaper than asking epoll which to read; it is still
  /// asked every kStepsPerPoll steps, for new connections.
  static constexpr std::size_t kFewConnections = 2;
  static constexpr unsigned kStepsPerPoll = 16;

  struct Watched {
    std::unique_ptr<Connection> connection;
    std::uint32_t interest = 0;  // as registered with epoll
    int dials = 0;
    int peer = -1;        // -1: not known yet
    bool busy = false;    // in busy_
    bool listed = false;  // in established_
  };
  struct Peer {
    std::vector<Path> paths;
    std::vector<std::unique_ptr<Watched>> connections;  // by path; null: not made
    std::map<int, std::unique_ptr<Channel>> channels;
    std::vector<Channel*> all;                          // the same
  };

  Status listen();
  std::vector<Path> paths_to(int peer) const;
  std::string describe(int peer) const;
  Peer& peer_entry(int peer);
  Status dial(int peer, std::size_t path);
  /// Moves everything that can be moved; waits up to `timeout_ms` for something to move.
  void step(int timeout_ms);
  bool read_directly();
  void on_event(Watched& watched, std::uint32_t events);
  void accept_strangers();
  /// An accepted connection has introduced itself: it becomes a peer's, or is dropped.
  void adopt(Watched& stranger);
  void drop_strangers();
  /// The connection takes no more: the others to the same peer take what is waiting for it.
  void relieve(Watched& watched);
  /// Brings epoll and the list of busy connections up to date with the connection.
  void settle(Watched& watched);
  void register_interest(Watched& watched);
  void note(Status&& status);
  bool all_left();

  TransportContext context_;
  std::vector<std::byte> secret_;
  std::vector<Listener> listeners_;
  OfferedAddresses offer_;
  std::vector<OfferedAddresses> offers_;  // by rank
  Status trouble_;                        // why this rank has no tcp
  FileDescriptor epoll_;
  bool accepting_ = false;
  std::map<int, Peer> peers_;
  std::vector<std::unique_ptr<Watched>> strangers_;
  std::vector<Watched*> busy_;
  std::vector<Watched*> established_;  // connections of peers that are or were ready
  unsigned steps_ = 0;
  std::int64_t process_ = 0;  // that opened it: a forked child leaves the connections alone
  bool leaving_ = false;
  Status failure_;  // the first one; the transport is of no use after it
};

}  // namespace tamaki::tcp
