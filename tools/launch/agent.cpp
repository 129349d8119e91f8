#include "launch/agent.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/memory_limits.hpp"
#include "launch/frames.hpp"

extern char** environ;

namespace tamaki::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kEnough = std::size_t{1} << 20;          // unsent output beyond which ranks are not read
constexpr auto kDrain = std::chrono::milliseconds(1000);       // for output that children of ended ranks still hold

struct Child {
  int rank = 0;
  pid_t pid = -1;  // also its process group
  int streams[2] = {-1, -1};
  bool exited = false;
};

/// A TCP port that is free on this host. *holder keeps it from being given to anybody who does not ask for it by
/// number: bound, not listening, with SO_REUSEADDR, so that rank 0 can bind it too.
int reserve_port(int* holder) {
  *holder = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool v6 = *holder >= 0;
  if (!v6) *holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, off = 0;
  setsockopt(*holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t bytes = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.ss_family = v6 ? AF_INET6 : AF_INET;
  if (v6) setsockopt(*holder, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(*holder, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(*holder, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    return 0;
  return ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                  : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

class Agent {
 public:
  int serve();

 private:
  void take_frames();
  void take_frame(const Frame& frame);
  void start_ranks(std::string_view extra_environment);
  Status make_room(int ranks);
  Status start_rank(int index, const std::vector<int>& cores, std::vector<std::string> environment);
  void take_output(Child& child, int stream);
  void take_exits();
  void end_input();
  bool finished() const;
  void send(const Frame& frame) { out_.push(encode_frame(frame)); }
  void kill_all(int signal_number);
  void give_up(const std::string& why);

  AgentJob job_;
  bool has_job_ = false, started_ = false, gone_ = false, failed_ = false;
  int port_holder_ = -1;
  rlimit descriptors_{};    // the limit that ranks inherit
  std::vector<Child> children_;
  FrameReader reader_;
  OutQueue out_{1};
  OutQueue input_;          // to stdin of rank 0
  bool input_ended_ = false;
  Clock::time_point last_exit_;
};

void Agent::give_up(const std::string& why) {
  failed_ = true;
  kill_all(SIGKILL);
  send({FrameKind::failed, 0, 0, why});
}

void Agent::kill_all(int signal_number) {
  // Leaders that have ended are not reaped before the end, so no other process can have got their numbers.
  for (const Child& child : children_) kill(-child.pid, signal_number);
}

void Agent::end_input() {
  input_ended_ = true;
  if (input_.size() == 0 && input_.fd() >= 0) {
    close(input_.fd());
    input_.reset(-1);
  }
}

/// Whether this host can hold so many ranks at all, before the first is started. Raises the agent's own limit of
/// descriptors as far as that is allowed.
Status Agent::make_room(int ranks) {
  constexpr std::uint64_t kLeastProcess = 128 << 10;  // stacks and page tables of the smallest program
  const auto count = static_cast<std::uint64_t>(ranks);
  if (Status room = check_memory(count * kLeastProcess, fmt::format("{} ranks on one host", ranks)); !room) return room;
  if (getrlimit(RLIMIT_NOFILE, &descriptors_) != 0) return fail_errno("getrlimit(RLIMIT_NOFILE)");
  const std::uint64_t need = 2 * count + 32;
  if (need > descriptors_.rlim_max)
    return fail(Code::system, fmt::format("{} ranks on one host need {} descriptors; the limit is {} (ulimit -H -n)", ranks, need, descriptors_.rlim_max));
  rlimit raised = descriptors_;
  raised.rlim_cur = std::max<rlim_t>(raised.rlim_cur, need);
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? Status() : fail_errno("setrlimit(RLIMIT_NOFILE)");
}

Status Agent::start_rank(int index, const std::vector<int>& cores, std::vector<std::string> environment) {
  const int rank = job_.first_rank + index, local = job_.first_local + index;
  environment.push_back(fmt::format("TAMAKI_RANK={}", rank));
  environment.push_back(fmt::format("TAMAKI_SIZE={}", job_.ranks));
  environment.push_back(fmt::format("TAMAKI_LOCAL_RANK={}", local));
  environment.push_back(fmt::format("TAMAKI_LOCAL_SIZE={}", job_.local_size));
  // Everything the child needs is made before fork.
  std::vector<char*> argv, envp;
  for (std::string& word : job_.program) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('=') + 1);
    bool replaced = false;
    for (const std::string& added : environment) replaced = replaced || std::string_view(added).substr(0, name.size()) == name;
    if (!replaced) envp.push_back(*entry);
  }
  for (std::size_t i = 0; i < environment.size(); ++i) {
    bool later = false;  // the last of equal names counts
    const std::string name = environment[i].substr(0, environment[i].find('=') + 1);
    for (std::size_t j = i + 1; j < environment.size(); ++j) later = later || environment[j].compare(0, name.size(), name) == 0;
    if (!later) envp.push_back(environment[i].data());
  }
  envp.push_back(nullptr);
  cpu_set_t core;
  CPU_ZERO(&core);
  if (!cores.empty()) CPU_SET(cores[static_cast<std::size_t>(local) % cores.size()], &core);

  int outputs[2][2], report[2], input[2] = {-1, -1};
  if (pipe2(outputs[0], O_CLOEXEC) != 0 || pipe2(outputs[1], O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
    return fail_errno("pipe for rank " + std::to_string(rank));
  if (rank == 0) {
    if (pipe2(input, O_CLOEXEC) != 0) return fail_errno("pipe for rank 0");
  } else {
    input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  const pid_t agent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail_errno("fork of rank " + std::to_string(rank));
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its agent, whatever ends that
    if (getppid() != agent) _exit(127);
    dup2(input[0], 0);
    dup2(outputs[0][1], 1);
    dup2(outputs[1][1], 2);
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setrlimit(RLIMIT_NOFILE, &descriptors_);
    if (!cores.empty()) sched_setaffinity(0, sizeof core, &core);
    if (chdir(job_.directory.c_str()) != 0) {
      const char* home = getenv("HOME");
      if (home == nullptr || chdir(home) != 0) (void)!chdir("/");
    }
    environ = envp.data();
    execvp(argv[0], argv.data());
    const int error = errno;
    (void)!write(report[1], &error, sizeof error);
    _exit(127);
  }
  setpgid(pid, pid);  // also here: a signal may be due before the child has done it
  close(input[0]);
  close(outputs[0][1]);
  close(outputs[1][1]);
  close(report[1]);
  Child child;
  child.rank = rank;
  child.pid = pid;
  child.streams[0] = outputs[0][0];
  child.streams[1] = outputs[1][0];
  for (int fd : child.streams) fcntl(fd, F_SETFL, O_NONBLOCK);  // our end: take_exits() may have emptied it before
  children_.push_back(child);
  if (rank == 0) {
    fcntl(input[1], F_SETFL, O_NONBLOCK);
    input_.reset(input[1]);
  }
  int error = 0;
  const ssize_t got = read(report[0], &error, sizeof error);
  close(report[0]);
  if (got == sizeof error)
    return fail(Code::system, fmt::format("cannot run {}: {}", job_.program[0], std::strerror(error)));
  return {};
}

void Agent::start_ranks(std::string_view extra_environment) {
  std::vector<std::string> environment = job_.environment;
  while (!extra_environment.empty()) {
    const auto end = extra_environment.find('\n');
    environment.emplace_back(extra_environment.substr(0, end));
    extra_environment.remove_prefix(end == std::string_view::npos ? extra_environment.size() : end + 1);
  }
  started_ = true;
  last_exit_ = Clock::now();
  const std::vector<int> cores = cores_for(job_.bind, job_.local_size);
  for (int i = 0; i < job_.local_ranks; ++i)
    if (Status status = start_rank(i, cores, environment); !status) return give_up(status.error().message);
}

void Agent::take_frame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::job: {
      Result<AgentJob> job = decode_job(frame.payload);
      if (!job || has_job_) return give_up(job ? "a second job" : job.error().message);
      job_ = std::move(*job);
      has_job_ = true;
      if (Status room = make_room(job_.local_ranks); !room) return give_up(room.error().message);
      send({FrameKind::ready, 0, reserve_port(&port_holder_), {}});
      return;
    }
    case FrameKind::start:
      if (has_job_ && !started_) start_ranks(frame.payload);
      return;
    case FrameKind::input:
      if (input_.fd() >= 0 && !input_.dead())
        input_.push(frame.payload);
      else  // rank 0 has closed its stdin: swallow
        send({FrameKind::taken, 0, static_cast<std::int32_t>(frame.payload.size()), {}});
      return;
    case FrameKind::input_end: return end_input();
    case FrameKind::signal:
      if (!started_ && frame.rank != SIGCONT) gone_ = true;  // the job ends before it began
      return kill_all(frame.rank);
    default: return give_up(fmt::format("unexpected frame {}", static_cast<int>(frame.kind)));
  }
}

void Agent::take_frames() {
  char bytes[65536];
  const ssize_t n = read(0, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    gone_ = true;  // the launcher has ended, however
    return;
  }
  reader_.feed({bytes, static_cast<std::size_t>(n)});
  while (auto frame = reader_.next()) take_frame(*frame);
  if (reader_.broken()) give_up("what arrived on stdin is not from a launcher of this version");
}

void Agent::take_output(Child& child, int stream) {
  char bytes[65536];
  const ssize_t n = read(child.streams[stream], bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    close(std::exchange(child.streams[stream], -1));
    return;
  }
  send({FrameKind::output, static_cast<std::uint8_t>(stream + 1), child.rank, {bytes, static_cast<std::size_t>(n)}});
}

void Agent::take_exits() {
  for (Child& child : children_) {
    siginfo_t info{};
    if (child.exited || waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    child.exited = true;
    last_exit_ = Clock::now();
    // What it wrote before it ended comes before the news of its end, as far as the pipes hold it.
    for (int stream = 0; stream < 2; ++stream) {
      pollfd ready{child.streams[stream], POLLIN, 0};
      while (child.streams[stream] >= 0 && poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0) {
        take_output(child, stream);
        ready.fd = child.streams[stream];
      }
    }
    const int status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    send({FrameKind::exited, 0, child.rank, std::to_string(status)});
    if (child.rank == 0 && input_.fd() >= 0) {
      close(input_.fd());
      input_.reset(-1);
    }
  }
}

bool Agent::finished() const {
  if (failed_) return true;
  if (!started_) return false;
  bool open = false;
  for (const Child& child : children_) {
    if (!child.exited) return false;
    open = open || child.streams[0] >= 0 || child.streams[1] >= 0;
  }
  return !open || Clock::now() - last_exit_ > kDrain;
}

int Agent::serve() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) sigaddset(&mask, number);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  while (!gone_ && !out_.dead() && !finished()) {
    std::vector<pollfd> fds{{0, POLLIN, 0}, {signals, POLLIN, 0}};
    fds.push_back({out_.size() > 0 ? 1 : -1, POLLOUT, 0});
    fds.push_back({input_.size() > 0 ? input_.fd() : -1, POLLOUT, 0});
    for (const Child& child : children_)
      for (int fd : child.streams) fds.push_back({out_.size() < kEnough ? fd : -1, POLLIN, 0});
    bool all_exited = started_;
    for (const Child& child : children_) all_exited = all_exited && child.exited;
    if (poll(fds.data(), fds.size(), all_exited ? 50 : -1) < 0 && errno != EINTR) break;
    if (fds[1].revents != 0) {
      signalfd_siginfo info;
      while (read(signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGPIPE) kill_all(static_cast<int>(info.ssi_signo));
      take_exits();
    }
    if (fds[2].revents != 0) out_.write_some();
    if (fds[3].revents != 0 && input_.fd() >= 0) {
      const std::size_t before = input_.size();
      input_.write_some();
      const std::size_t taken = before - input_.size();
      if (taken > 0) send({FrameKind::taken, 0, static_cast<std::int32_t>(taken), {}});
      if (input_ended_) end_input();
    }
    for (std::size_t i = 4; i < fds.size(); ++i) {
      Child& child = children_[(i - 4) / 2];
      const int stream = static_cast<int>((i - 4) % 2);
      if (fds[i].fd >= 0 && fds[i].revents != 0 && child.streams[stream] == fds[i].fd) take_output(child, stream);
    }
    if (fds[0].revents != 0) take_frames();
  }
  kill_all(SIGKILL);
  for (const Child& child : children_) waitpid(child.pid, nullptr, 0);
  if (!gone_) {
    pollfd ready{1, POLLOUT, 0};
    while (out_.size() > 0 && !out_.dead() && poll(&ready, 1, 10000) > 0) out_.write_some();
  }
  return failed_ || gone_ ? 1 : 0;
}

}  // namespace

int run_agent() { return Agent().serve(); }

}  // namespace tamaki::tools
