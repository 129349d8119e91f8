#pragma once
// One TCP connection of a pair of ranks, shared by the channels that are at home on its path. It moves frames between the
// socket and the channels' rings without ever blocking, and it is the only place that touches the bytes.
//
//   dialling -> proving -> ready -> closed                    side that dials (the lower rank)
//   proving -> greeting -> introduced -> ready -> closed      side that accepts: greeting waits for the
//   hello frame,
//                                                             introduced for its owner to admit the
//                                                             connection
//
// All methods are called by the thread that is inside the communicator.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/handshake.hpp"
#include "base/result.hpp"
#include "base/socket.hpp"
#include "transports/tcp/channel.hpp"
#include "transports/tcp/frame.hpp"

namespace tamaki::tcp {

class Connection {
 public:
  enum class Stage { dialling, proving, greeting, introduced, ready, closed };

  /// The side that dials. `hello` and `path` tell the other side what the connection is for.
  struct Dialled {
    Socket socket;  // of Socket::start_connect
    Address remote;
    std::span<const std::byte> secret;
    Hello hello;
    std::uint32_t path = 0;
    std::string peer;  // "rank 3 (host b, pid 7)", for messages
  };
  explicit Connection(Dialled dialled);
  /// The side that accepted a connection from `remote`, not yet known.
  Connection(Socket socket, const Address& remote, std::span<const std::byte> secret);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Stage stage() const { return stage_; }
  int fd() const { return socket_.fd(); }
  /// Events of epoll to wait for now.
  std::uint32_t interest() const;
  /// Time after which an accepted connection that has not introduced itself is dropped.
  Deadline greet_by() const { return greet_by_; }
  /// Where an error closed the connection.
  Stage broke_in() const { return broke_in_; }
  /// Whose it is; for accepted connections valid once introduced.
  const Hello& hello() const { return hello_; }
  const Address& remote() const { return remote_; }
  std::uint32_t path() const { return path_; }
  /// Goes from introduced to ready; the channels were added before.
  Status admit();
  void set_peer(std::string peer) { peer_ = std::move(peer); }

  /// Closes without a word.
  void abandon();

  /// There are more connections to this peer: this one takes messages of `all`, the channels of all of them, while
  /// those' own homes take no more. So the load follows the rates. The vector may grow, the caller keeps it.
  void share(const std::vector<Channel*>* all);
  /// The socket takes no more for now.
  bool blocked() const { return blocked_; }
  /// Bytes of messages that were sent here.
  std::uint64_t carried() const { return carried_; }

  /// Adds a channel of this path; it stays owned by the caller and outlives the connection.
  Status add(Channel& channel);
  /// Looks at the channel again at the next send(): its executor has committed messages.
  void activate(Channel& channel);
  /// Some channel may have something to send.
  bool busy() const { return !active_.empty() || batched_ != 0; }

  /// Established, with nothing to wait for but bytes of the peer.
  bool only_reads() const { return stage_ == Stage::ready && !blocked_; }

  /// Moves what `events` of epoll announce. An error closes the connection; the text names the peer.
  Status handle(std::uint32_t events);
  /// Sends what is due as far as the socket takes it.
  Status send();

  /// Starts the end: when everything committed (all: true) or begun has been sent, says goodbye and shuts
  /// the sending side. left() is then true once the peer's system has all of it.
  enum class Last { committed, begun };
  void leave(Last last);
  bool left() const;

 private:
  struct Outgoing {
    Frame frame;
    Channel* channel = nullptr;  // of a data frame: its slot is free once the frame is sent
    const std::byte* payload = nullptr;
  };
  static constexpr std::size_t kBatch = 8;  // frames in one system call
  static constexpr std::size_t kStaging =
      8192;                                // bytes read ahead: a message of up to 8 KiB comes with one call
  static constexpr int kReadsAtOnce = 16;  // before the next connection gets its turn

  Status prove();
  Status fill_batch();
  bool add_frame(FrameKind kind, Channel* channel);
  /// The next message of the channel, if there is one to go and the batch has room. False: none.
  Result<bool> add_message(Channel& channel);
  void batch_sent(std::size_t bytes);
  Status receive();
  Status end_of_stream(int error);
  Status leave_behind();
  Status parse();
  Status accept_frame(const Frame& frame);
  Status accept_hello(const Frame& frame);
  Status accept_data(const Frame& frame, Channel* channel);
  void deliver();
  Status broken(Code code, const std::string& what);

  Socket socket_;
  Address remote_;
  Stage stage_;
  std::string peer_;
  Handshake handshake_;
  Deadline greet_by_;
  Hello hello_;
  std::uint32_t path_ = 0;
  bool hello_due_ = false;
  Stage broke_in_ = Stage::closed;

  std::vector<Channel*> channels_;  // by channel number; null: not connected here
  struct Geometry {
    std::uint32_t slot_bytes = 0;
    std::uint32_t depth = 0;  // 0: not known
  };
  Status opened(Channel& channel, const Geometry& peer);
  std::vector<Geometry> announced_;  // by channel number: of the peer's open frame
  std::vector<Channel*> active_;
  const std::vector<Channel*>* shared_ = nullptr;  // channels of all connections to the peer
  std::uint64_t carried_ = 0;
  std::size_t turn_ = 0;  // rotates through active_, so that each channel gets its share

  std::array<Outgoing, kBatch> batch_;
  std::size_t batched_ = 0;   // frames in batch_
  std::size_t first_ = 0;     // first one not completely sent
  std::size_t first_at_ = 0;  // bytes of it that are sent
  bool blocked_ = false;      // the socket takes no more for now
  bool write_dead_ = false;   // the peer no longer reads; what it sent before is still to be read
  bool leaving_ = false;
  Last last_ = Last::committed;
  bool goodbye_sent_ = false;
  bool goodbye_received_ = false;

  alignas(8) std::array<std::byte, kStaging> staging_;
  std::size_t staged_ = 0;       // bytes in staging_, from its start
  Frame incoming_;               // the data frame whose payload is coming
  Channel* receiver_ = nullptr;  // its channel; null: a header comes next
  std::size_t payload_at_ = 0;   // bytes of the payload that have come
};

}  // namespace tamaki::tcp
