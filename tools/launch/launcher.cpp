#include "launch/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "command.hpp"
#include "launch/frames.hpp"

extern char** environ;

namespace tamaki::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // longer ones are cut, so that memory stays bounded
constexpr std::size_t kEnough = std::size_t{1} << 20;       // unwritten output beyond which agents are not read
constexpr std::size_t kInputAhead = std::size_t{256} << 10; // stdin bytes rank 0 has not taken yet
constexpr auto kForever = Clock::time_point::max();

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct AgentLink {
  HostPart part;
  pid_t pid = -1;
  OutQueue to;         // its stdin
  int from = -1;       // its stdout
  int complaints = -1; // its stderr: of the remote shell, or of an agent that could not start
  FrameReader reader;
  bool ready = false;
  bool failed = false;
  int exited = 0;      // ranks
  std::string where() const { return part.host.empty() ? std::string("this host") : part.host; }
};

std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
  return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
}

class Launcher {
 public:
  explicit Launcher(const LaunchJob& job) : job_(job), out_{OutQueue(1), OutQueue(2)} {}
  ~Launcher();
  Result<int> run();

 private:
  Status start_agent(const HostPart& part);
  Status start_agents();
  AgentJob agent_job(const HostPart& part) const;
  void take_frames(AgentLink& agent);
  void take_frame(AgentLink& agent, Frame& frame);
  void take_complaints(AgentLink& agent);
  void take_signal(int number);
  void take_input();
  void take_end(AgentLink& agent, int rank, int wait_status);
  void lose_agent(AgentLink& agent, const std::string& why);
  void all_ready(int port);
  void fail_job(int status, const std::string& message);
  void signal_all(int number);
  void write_lines(int rank, int stream, std::string_view bytes, bool ended);
  void say(const std::string& message) { out_[1].push(job_.caller + ": " + message + "\n"); }
  bool may_read_input() const;
  void pass_deadlines();
  int poll_timeout() const;

  const LaunchJob& job_;
  std::vector<std::unique_ptr<AgentLink>> agents_;
  std::map<std::pair<int, int>, std::string> lines_;  // (rank, stream) -> begun line
  OutQueue out_[2];
  std::string secret_;
  std::optional<int> status_;  // of the first failure
  bool ending_ = false;        // the others have been told, or a signal was handed on
  bool started_ = false;
  bool input_open_ = true;
  std::size_t input_ahead_ = 0;
  int port_ = 0;
  int signals_ = -1;
  Clock::time_point timeout_at_ = kForever, term_at_ = kForever, kill_at_ = kForever;
};

Launcher::~Launcher() {
  for (auto& agent : agents_) {
    if (agent->to.fd() >= 0) close(agent->to.fd());  // an agent still alive takes this as its end
    if (agent->from >= 0) close(agent->from);
    if (agent->complaints >= 0) close(agent->complaints);
    waitpid(agent->pid, nullptr, 0);
  }
  if (signals_ >= 0) close(signals_);
}

AgentJob Launcher::agent_job(const HostPart& part) const {
  AgentJob job;
  job.program = job_.program;
  if (!part.host.empty())  // ranks of this host inherit everything; others get the settings
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::strncmp(*entry, "TAMAKI_", 7) == 0) job.environment.emplace_back(*entry);
  job.environment.insert(job.environment.end(), job_.environment.begin(), job_.environment.end());
  char directory[PATH_MAX];
  job.directory = getcwd(directory, sizeof directory) != nullptr ? directory : "/";
  job.ranks = 0;
  for (const HostPart& other : job_.parts) job.ranks += other.ranks;
  job.first_rank = part.first_rank;
  job.local_ranks = part.ranks;
  job.first_local = part.first_local;
  job.local_size = part.local_size;
  job.bind = job_.bind;
  return job;
}

Status Launcher::start_agent(const HostPart& part) {
  Result<std::string> self = own_path();
  if (!self) return pass(std::move(self));
  std::vector<std::string> words;
  if (part.host.empty()) {
    words = {*self, "run", "--agent"};
  } else {
    Result<std::vector<std::string>> shell = shell_words(job_.remote_shell);
    if (!shell) return fail(shell.error().code, "--rsh: " + shell.error().message);
    if (shell->empty()) return fail(Code::invalid_argument, fmt::format("--rsh: \"{}\" names no command", job_.remote_shell));
    words = *shell;
    words.push_back(part.host);
    words.push_back(shell_quote(job_.remote_command.empty() ? *self : job_.remote_command) + " run --agent");
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int to[2], from[2], complaints[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0 || pipe2(complaints, O_CLOEXEC) != 0)
    return fail_errno("pipe for the agent of " + part.host);
  auto agent = std::make_unique<AgentLink>();
  agent->part = part;
  agent->pid = fork();
  if (agent->pid < 0) return fail_errno("fork");
  if (agent->pid == 0) {
    setpgid(0, 0);  // the terminal's Ctrl-C comes to the launcher alone, which hands it on once
    dup2(to[0], 0);
    dup2(from[1], 1);
    dup2(complaints[1], 2);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvp(argv[0], argv.data());
    dprintf(2, "cannot run %s: %s\n", argv[0], std::strerror(errno));
    _exit(kCannotRun);
  }
  close(to[0]);
  close(from[1]);
  close(complaints[1]);
  agent->to.reset(to[1]);
  agent->from = from[0];
  agent->complaints = complaints[0];
  agent->to.push(encode_frame({FrameKind::job, 0, 0, encode_job(agent_job(part))}));
  agents_.push_back(std::move(agent));
  return {};
}

Status Launcher::start_agents() {
  for (HostPart part : job_.parts) {
    if (part.host == "localhost" && job_.remote_shell == LaunchJob{}.remote_shell) part.host.clear();
    if (Status status = start_agent(part); !status) return status;
  }
  return {};
}

void Launcher::signal_all(int number) {
  for (auto& agent : agents_)
    if (agent->to.fd() >= 0) agent->to.push(encode_frame({FrameKind::signal, 0, number, {}}));
}

void Launcher::fail_job(int status, const std::string& message) {
  if (!message.empty()) say(message);
  if (!status_) status_ = status;
  if (ending_ || job_.on_failure == LaunchJob::OnFailure::keep_going) return;
  ending_ = true;
  term_at_ = after(job_.linger_s);
}

void Launcher::take_end(AgentLink& agent, int rank, int wait_status) {
  ++agent.exited;
  for (int stream = 1; stream <= 2; ++stream) write_lines(rank, stream, {}, false);
  if (wait_status == 0) return;
  const int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  int alive = -agent.exited;
  for (auto& other : agents_) alive += other->part.ranks - (other.get() == &agent ? 0 : other->exited);
  const bool first = !status_ && !ending_;
  const bool told = job_.on_failure == LaunchJob::OnFailure::keep_going;
  const bool silent = job_.ends == LaunchJob::Ends::told_if_unusual && status <= kRuntime;
  if ((!first && !told) || silent) return fail_job(status, "");
  fail_job(status, fmt::format("rank {}{} {}{}", rank, agent.part.host.empty() ? "" : " on " + agent.part.host,
                               describe_end(wait_status),
                               alive > 0 && !told ? fmt::format("; ending the other {}", alive) : ""));
}

void Launcher::lose_agent(AgentLink& agent, const std::string& why) {
  if (agent.failed) return;
  agent.failed = true;
  fail_job(kRuntime, ending_ ? "" : why);
}

void Launcher::all_ready(int port) {
  if (port != 0) port_ = port;
  for (auto& agent : agents_)
    if (!agent->ready) return;
  // Rank 0 listens there. Where all ranks share this machine no other interface than the loopback is needed.
  bool remote = false;
  for (auto& agent : agents_) remote = remote || !agent->part.host.empty();
  std::string host = "127.0.0.1";
  if (remote) {
    host = agents_[0]->part.host;
    if (const auto at = host.find('@'); at != std::string::npos) host.erase(0, at + 1);
    if (host.empty()) {
      char name[256] = {};
      gethostname(name, sizeof name - 1);
      host = name;
    }
    if (host.find(':') != std::string::npos) host = "[" + host + "]";
  }
  const std::string lines = fmt::format("TAMAKI_RENDEZVOUS={}:{}\nTAMAKI_SECRET={}", host, port_, secret_);
  for (auto& agent : agents_) agent->to.push(encode_frame({FrameKind::start, 0, 0, lines}));
  started_ = true;
  if (job_.input == LaunchJob::Input::none) {
    input_open_ = false;
    agents_[0]->to.push(encode_frame({FrameKind::input_end, 0, 0, {}}));
  }
}

void Launcher::take_frame(AgentLink& agent, Frame& frame) {
  switch (frame.kind) {
    case FrameKind::ready:
      agent.ready = true;
      return all_ready(agent.part.first_rank == 0 ? frame.rank : 0);
    case FrameKind::output: return write_lines(frame.rank, frame.stream, frame.payload, false);
    case FrameKind::taken:
      input_ahead_ -= std::min(input_ahead_, static_cast<std::size_t>(frame.rank));
      return;
    case FrameKind::exited: return take_end(agent, frame.rank, std::atoi(frame.payload.c_str()));
    case FrameKind::failed:
      agent.failed = true;
      return fail_job(frame.payload.rfind("cannot run", 0) == 0 ? kCannotRun : kRuntime,
                      frame.payload + (agent.part.host.empty() ? "" : " (on " + agent.part.host + ")"));
    default: return lose_agent(agent, fmt::format("{} sent an unexpected frame", agent.where()));
  }
}

void Launcher::take_frames(AgentLink& agent) {
  char bytes[65536];
  const ssize_t n = read(agent.from, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) {
    agent.reader.feed({bytes, static_cast<std::size_t>(n)});
    while (auto frame = agent.reader.next()) take_frame(agent, *frame);
    if (!agent.reader.broken()) return;
    std::string shown = agent.reader.rest().substr(0, 60);
    shown.erase(std::find_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }), shown.end());
    lose_agent(agent, fmt::format("{} answers \"{}\" where an agent was expected (does its shell print a greeting?)",
                                  agent.where(), shown));
  }
  close(std::exchange(agent.from, -1));
  if (agent.to.fd() >= 0) close(agent.to.fd());
  agent.to.reset(-1);
  int wait_status = 0;
  waitpid(agent.pid, &wait_status, agent.reader.broken() ? WNOHANG : 0);
  if (agent.exited < agent.part.ranks)
    lose_agent(agent, fmt::format("the agent on {} {} before its ranks had ended", agent.where(), describe_end(wait_status)));
}

void Launcher::take_complaints(AgentLink& agent) {
  char bytes[16384];
  const ssize_t n = read(agent.complaints, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) return write_lines(-1 - agent.part.first_rank, 2, {bytes, static_cast<std::size_t>(n)}, false);
  close(std::exchange(agent.complaints, -1));
}

void Launcher::write_lines(int rank, int stream, std::string_view bytes, bool ended) {
  if (stream < 1 || stream > 2) return;
  std::string& begun = lines_[{rank, stream}];
  const auto emit = [&](std::string_view line) {
    if (job_.tag == LaunchJob::Tag::rank || rank < 0) {
      std::string prefix = fmt::format("[{}] ", rank);
      if (rank < 0)
        for (auto& agent : agents_)
          if (agent->part.first_rank == -1 - rank) prefix = fmt::format("[{}] ", agent->where());
      out_[stream - 1].push(prefix);
    }
    out_[stream - 1].push(line);
  };
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    begun += bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (begun.size() >= kLongestLine && begun.back() != '\n') begun += '\n';
    if (begun.back() == '\n') emit(std::exchange(begun, {}));
  }
  if (ended && !begun.empty()) {
    if (job_.tag == LaunchJob::Tag::rank || rank < 0) begun += '\n';
    emit(std::exchange(begun, {}));
  }
}

void Launcher::take_signal(int number) {
  switch (number) {
    case SIGCHLD: case SIGPIPE: return;
    case SIGTSTP:
      signal_all(SIGSTOP);
      for (auto& agent : agents_)
        while (agent->to.size() > 0 && !agent->to.dead()) agent->to.write_some();
      raise(SIGSTOP);
      return signal_all(SIGCONT);
    case SIGCONT: case SIGWINCH: return;
    case SIGINT: case SIGTERM: case SIGHUP: case SIGQUIT:
      if (kill_at_ != kForever) {  // asked twice: at once
        kill_at_ = Clock::now();
        return;
      }
      ending_ = true;
      kill_at_ = after(job_.grace_s);
      [[fallthrough]];
    default: return signal_all(number);
  }
}

bool Launcher::may_read_input() const {
  if (!started_ || !input_open_ || input_ahead_ >= kInputAhead || agents_[0]->to.fd() < 0) return false;
  // A background job must not touch the terminal.
  return isatty(0) == 0 || tcgetpgrp(0) == getpgrp();
}

void Launcher::take_input() {
  char bytes[65536];
  const ssize_t n = read(0, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  AgentLink& agent = *agents_[0];
  if (n <= 0) {
    input_open_ = false;
    agent.to.push(encode_frame({FrameKind::input_end, 0, 0, {}}));
    return;
  }
  input_ahead_ += static_cast<std::size_t>(n);
  agent.to.push(encode_frame({FrameKind::input, 0, 0, {bytes, static_cast<std::size_t>(n)}}));
}

void Launcher::pass_deadlines() {
  const auto now = Clock::now();
  if (now >= timeout_at_) {
    timeout_at_ = kForever;
    status_ = status_.value_or(kTimedOut);
    say(fmt::format("the job has not ended within {:g} s; ending it", job_.timeout_s));
    ending_ = true;
    term_at_ = now;
  }
  if (now >= term_at_) {
    term_at_ = kForever;
    signal_all(SIGTERM);
    if (kill_at_ == kForever) kill_at_ = after(job_.grace_s);
  }
  if (now >= kill_at_) {
    kill_at_ = now + std::chrono::hours(1);
    signal_all(SIGKILL);
  }
}

int Launcher::poll_timeout() const {
  const auto next = std::min({timeout_at_, term_at_, kill_at_});
  if (next == kForever) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left + 1, 0, 3600 * 1000));
}

Result<int> Launcher::run() {
  unsigned char random[32];
  if (getrandom(random, sizeof random, 0) != sizeof random) return fail_errno("getrandom");
  for (const unsigned char byte : random) secret_ += fmt::format("{:02x}", byte);

  sigset_t mask;
  sigemptyset(&mask);
  for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH, SIGPIPE})
    sigaddset(&mask, number);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) return fail_errno("signalfd");
  if (Status status = start_agents(); !status) return pass(std::move(status));
  if (job_.timeout_s > 0) timeout_at_ = after(job_.timeout_s);

  while (true) {
    bool open = false;
    for (auto& agent : agents_) open = open || agent->from >= 0 || agent->complaints >= 0;
    if (!open) break;
    std::vector<pollfd> fds{{signals_, POLLIN, 0}, {may_read_input() ? 0 : -1, POLLIN, 0}};
    for (OutQueue& out : out_) fds.push_back({out.size() > 0 ? out.fd() : -1, POLLOUT, 0});
    const bool room = out_[0].size() < kEnough && out_[1].size() < kEnough;
    for (auto& agent : agents_) {
      fds.push_back({agent->to.size() > 0 ? agent->to.fd() : -1, POLLOUT, 0});
      fds.push_back({room ? agent->from : -1, POLLIN, 0});
      fds.push_back({room ? agent->complaints : -1, POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), poll_timeout()) < 0 && errno != EINTR) return fail_errno("poll");
    if (fds[0].revents != 0) {
      signalfd_siginfo info;
      while (read(signals_, &info, sizeof info) == sizeof info) take_signal(static_cast<int>(info.ssi_signo));
    }
    for (int i = 0; i < 2; ++i)
      if (fds[static_cast<std::size_t>(2 + i)].revents != 0) out_[i].write_some();
    if (out_[0].dead() && !status_) {  // whoever read our output has gone
      status_ = 128 + SIGPIPE;
      ending_ = true;
      term_at_ = Clock::now();
    }
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (fds[4 + 3 * i].revents != 0) agents_[i]->to.write_some();
      if (fds[5 + 3 * i].revents != 0) take_frames(*agents_[i]);
      if (fds[6 + 3 * i].revents != 0) take_complaints(*agents_[i]);
    }
    if (fds[1].revents != 0) take_input();
    pass_deadlines();
  }
  for (auto& [source, begun] : lines_) write_lines(source.first, source.second, {}, true);
  for (OutQueue& out : out_)
    while (out.size() > 0 && !out.dead()) out.write_some();
  return status_.value_or(0);
}

}  // namespace

Result<int> launch(const LaunchJob& job) { return Launcher(job).run(); }

Result<std::string> own_path() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0 || n == sizeof path) return fail_errno("readlink(/proc/self/exe)");
  return std::string(path, static_cast<std::size_t>(n));
}

}  // namespace tamaki::tools
