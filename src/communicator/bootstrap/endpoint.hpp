#pragma once
// Framed, authenticated connections of one thread: the event loop below the rendezvous and the tree.
//
// An endpoint accepts and dials. A connection counts only after its handshake: until then nothing of it reaches the
// handler, it may last kProofTime at most, and at most kMostUnproven of them are held (the oldest gives way), so that
// port scans, floods and silent strangers cost the job nothing but that. A dialer tries its addresses in turn until its
// deadline.
//
// Frame: length of the payload (u32), type (u32), payload.
//
// Threads: one thread calls run(); everything else is called from the handler, inside run(), or before it. Only wake()
// may be called from anywhere.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/handshake.hpp"
#include "base/secret.hpp"
#include "base/socket.hpp"
#include "communicator/bootstrap/wire.hpp"

namespace tamaki::bootstrap {

class Endpoint {
 public:
  using Id = std::uint64_t;  // of a connection; never used twice; 0: none
  static constexpr std::chrono::milliseconds kProofTime{5000};
  static constexpr std::size_t kMostUnproven = 128;
  static constexpr std::size_t kMostPayload = std::size_t{1} << 30;

  class Handler {
   public:
    virtual ~Handler() = default;
    /// A connection whose peer has proved that it knows the secret.
    virtual void on_open(Id id) = 0;
    virtual void on_frame(Id id, std::uint32_t type, std::span<const std::byte> payload) = 0;
    /// The peer of an open connection closed it, or it broke. The id is no longer valid.
    virtual void on_closed(Id id, const Error& why) = 0;
    /// A dialer gave up; no connection of that id will open.
    virtual void on_dial_failed(Id id, const Error& why) = 0;
    /// After wake(), once or more often.
    virtual void on_wake() = 0;
    /// When timer() has passed.
    virtual void on_timer() = 0;
    /// The process of watch_process(id) has ended.
    virtual void on_process_end(Id id) = 0;
  };

  /// What a refused connection means to a dialer: the other side is not there yet, probably not any more, or surely so.
  enum class Refusal { wait, final, at_once };

  static Result<std::unique_ptr<Endpoint>> open(Handler& handler);
  ~Endpoint();

  /// Accepts on `listener` those that prove knowledge of `secret`.
  Status listen(Listener listener, const Secret& secret);
  void stop_listening();
  /// Connects to the first of `addresses` that answers and proves itself. on_open or on_dial_failed follows, unless
  /// the id is closed before.
  Id dial(std::vector<Address> addresses, const Secret& secret, Deadline deadline, Refusal refusal);
  /// Queues a frame; it goes out as the socket takes it. Unknown ids are ignored (their on_closed has been called).
  void send(Id id, std::uint32_t type, std::span<const std::byte> payload);
  /// Drops a connection or dialer at once, without a call of the handler.
  void close(Id id);
  /// Sends what is queued, then the end of the stream; on_closed follows when the peer has closed too.
  void finish(Id id);
  /// Calls on_process_end when process `pid` of this host ends (Linux 5.3; quietly does nothing before).
  void watch_process(Id id, int pid);
  std::string peer_text(Id id) const;

  Deadline timer() const { return timer_; }
  void set_timer(Deadline when) { timer_ = when; }
  void wake();

  /// Serves until quit().
  void run();
  void quit() { quit_ = true; }

 private:
  enum class Stage { connecting, proving, open };
  struct Connection {
    Socket socket;
    Stage stage = Stage::proving;
    std::optional<Handshake> handshake;
    Deadline deadline = Deadline::max();  // of the proof
    bool dialed = false;
    bool finishing = false;
    bool end_sent = false;
    std::uint32_t interest = 0;  // epoll events asked for
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    std::size_t out_at = 0;
    FileDescriptor process;
  };
  struct Dialer {
    std::vector<Address> addresses;
    Secret secret;
    Deadline deadline;
    Refusal refusal;
    std::size_t next = 0;         // address to try
    std::size_t refused = 0;      // attempts in a row that were refused
    Deadline resume = Deadline::max();  // when waiting between attempts
    std::string last_error;
    bool answered = false;        // last_error is of an address that accepted the connection
  };
  struct Door {
    Listener listener;
    Secret secret;
  };
  explicit Endpoint(Handler& handler) : handler_(handler) {}

  void accept_from(Door& door);
  void pause_accepting();
  void make_room();
  Status watch(int fd, std::uint64_t key, std::uint32_t events, bool known);
  void update_interest(Id id, Connection& connection);
  void serve(Id id, std::uint32_t events);
  bool prove(Id id, Connection& connection);
  std::size_t receive(Id id);
  bool flush(Connection& connection, Error* why);
  void broken(Id id, const Error& why);
  void attempt(Id id);
  void attempt_failed(Id id, const Error& why);
  void check_deadlines();
  Deadline next_deadline() const;

  Handler& handler_;
  FileDescriptor epoll_, wake_;
  std::vector<Door> doors_;
  bool doors_paused_ = false;
  Deadline doors_resume_ = Deadline::max();
  std::unordered_map<Id, Connection> connections_;
  std::unordered_map<Id, Dialer> dialers_;
  std::deque<Id> unproven_;  // accepted, oldest first; may hold ids that are proven or gone
  Id next_id_ = 1;
  Deadline timer_ = Deadline::max();
  bool quit_ = false;
};

}  // namespace tamaki::bootstrap
