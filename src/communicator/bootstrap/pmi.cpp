// PMI-1, the text protocol of MPICH's process managers, which Slurm's pmi2 plug-in speaks as well: lines of key=value on
// an inherited socket.

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "communicator/bootstrap/environment.hpp"

namespace tamaki::bootstrap {
namespace {

/// The process' one conversation with its process manager. Held until the process ends: to finish earlier would close
/// the connection for communicators made later, and to end without a word makes the manager end the job.
class PmiSession {
 public:
  ~PmiSession() {
    if (state_ == State::open && pid_ == ::getpid()) {  // not in a forked child
      const std::lock_guard lock(mutex_);
      static_cast<void>(ask("cmd=finalize", "finalize_ack", deadline_in(1000)));
    }
  }

  Status open(int fd, Deadline deadline) {
    const std::lock_guard lock(mutex_);
    if (state_ == State::open && fd_ == fd && pid_ == ::getpid()) return {};
    if (state_ == State::broken) return fail(Code::system, "the conversation with the process manager broke before");
    struct stat facts {};
    // Where descriptors were closed on the way here, the number may by now be anything.
    if (::fstat(fd, &facts) != 0 || !S_ISSOCK(facts.st_mode))
      return fail(Code::system, "PMI_FD=" + std::to_string(fd) + " is not a socket of this process");
    fd_ = fd;
    pid_ = ::getpid();
    state_ = State::open;
    Result<std::string> hello = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    if (hello && value(*hello, "rc") != "0") hello = fail(Code::system, "the process manager answers \"" + *hello + "\"");
    Result<std::string> maxes = hello ? ask("cmd=get_maxes", "maxes", deadline) : std::move(hello);
    Result<std::string> name = maxes ? ask("cmd=get_my_kvsname", "my_kvsname", deadline) : std::move(maxes);
    if (!name) {
      state_ = State::broken;
      return pass(std::move(name));
    }
    space_ = value(*name, "kvsname");
    return {};
  }

  Status put(const std::string& key, const std::string& text, Deadline deadline) {
    const std::lock_guard lock(mutex_);
    return done(ask("cmd=put kvsname=" + space_ + " key=" + key + " value=" + text, "put_result", deadline));
  }
  Status barrier(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    return done(ask("cmd=barrier_in", "barrier_out", deadline));
  }
  Result<std::string> get(const std::string& key, Deadline deadline) {
    const std::lock_guard lock(mutex_);
    Result<std::string> answer = ask("cmd=get kvsname=" + space_ + " key=" + key, "get_result", deadline);
    if (!answer) return answer;
    if (value(*answer, "rc") != "0") return fail(Code::system, "the process manager has no " + key + ": \"" + *answer + "\"");
    return value(*answer, "value");
  }

 private:
  enum class State { closed, open, broken };

  static std::string value(const std::string& line, const std::string& key) {
    const std::string padded = " " + line;
    const auto at = padded.find(" " + key + "=");
    if (at == std::string::npos) return {};
    const auto begin = at + key.size() + 2;
    return padded.substr(begin, padded.find(' ', begin) - begin);
  }

  static Status done(Result<std::string> answer) {
    if (!answer) return pass(std::move(answer));
    const std::string code = value(*answer, "rc");  // barriers answer without one
    if (!code.empty() && code != "0") return fail(Code::system, "the process manager answers \"" + *answer + "\"");
    return {};
  }

  /// One request and its answer, which must be `command`.
  Result<std::string> ask(const std::string& request, const std::string& command, Deadline deadline) {
    if (state_ == State::broken) return fail(Code::system, "the conversation with the process manager broke before");
    Result<std::string> answer = exchange(request + "\n", deadline);
    if (answer && value(*answer, "cmd") != command)
      answer = fail(Code::system, "the process manager answers \"" + *answer + "\" to \"" + request.substr(0, 60) + "\"");
    // After half an answer nobody knows what the next line belongs to.
    if (!answer) state_ = State::broken;
    return answer;
  }

  Result<std::string> exchange(const std::string& request, Deadline deadline) {
    for (std::size_t at = 0; at < request.size();) {
      if (Status status = wait_for(fd_, POLLOUT, deadline, "process manager"); !status) return pass(std::move(status));
      const ssize_t n = ::write(fd_, request.data() + at, request.size() - at);
      if (n < 0 && errno != EINTR && errno != EAGAIN) return fail_errno("write to the process manager");
      if (n > 0) at += static_cast<std::size_t>(n);
    }
    std::string line;
    while (true) {
      if (Status status = wait_for(fd_, POLLIN, deadline, "process manager"); !status) return pass(std::move(status));
      char c = 0;  // byte by byte: what follows the line is not ours to take
      const ssize_t n = ::read(fd_, &c, 1);
      if (n == 0) return fail(Code::peer_lost, "the process manager closed its connection");
      if (n < 0 && errno != EINTR && errno != EAGAIN) return fail_errno("read from the process manager");
      if (n < 0) continue;
      if (c == '\n') return line;
      if (line.size() > 65536) return fail(Code::system, "the process manager sends a line without an end");
      line += c;
    }
  }

  std::mutex mutex_;
  State state_ = State::closed;
  int fd_ = -1;  // the environment's, not ours to close
  pid_t pid_ = 0;
  std::string space_;
};

PmiSession& session() {
  static PmiSession instance;
  return instance;
}

}  // namespace

Result<TextBoard> pmi_board(int fd, const Launch& launch, unsigned generation, Deadline deadline) {
  if (Status status = session().open(fd, deadline); !status) return pass(std::move(status));
  const std::string prefix = "tamaki-" + std::to_string(generation) + "-";
  TextBoard board;
  board.publish = [=](const std::string& mine) -> Status {
    if (Status status = session().put(prefix + std::to_string(launch.rank), mine, deadline); !status) return status;
    Status status = session().barrier(deadline);
    if (!status && status.error().code == Code::timeout)
      status.error().message = "not all " + std::to_string(launch.ranks) +
                               " ranks came to the process manager's barrier in time (it does not say which)";
    return status;
  };
  board.read = [=](int rank) { return session().get(prefix + std::to_string(rank), deadline); };
  return board;
}

}  // namespace tamaki::bootstrap
