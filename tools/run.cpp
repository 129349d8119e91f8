// tamaki run: starts ranks here and on other hosts.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "arguments.hpp"
#include "command.hpp"
#include "launch/launcher.hpp"

namespace tamaki::tools {
namespace {

struct RunArguments {
  int ranks = 0;
  std::string hosts, remote_shell = LaunchJob{}.remote_shell, remote_command, bind = "auto";
  std::vector<std::string> environment;
  bool no_tag = false, keep_going = false, agent = false, tag = false;
  double timeout_s = 0, grace_s = 5, linger_s = 0;
};

constexpr const char* kFooter = R"(
Ranks find each other by TAMAKI_RANK, TAMAKI_SIZE, TAMAKI_LOCAL_RANK, TAMAKI_LOCAL_SIZE, TAMAKI_RENDEZVOUS and
TAMAKI_SECRET in their environment; a program of tmkCommInitEnv needs nothing else. The secret of a job travels to
other hosts over the stdin of the remote shell, never on a command line.

Examples:
  tamaki run -n 4 -- ./program --size 10
  tamaki run -n 8 --bind none --env OMP_NUM_THREADS=1 -- python3 train.py
  tamaki run --hosts a:4,b:4 -- ./program
  tamaki run -n 4 --hosts a,b --rsh "ssh -p 2222" -- ./program

Exit status: that of the first rank that failed (128 + signal), 0 if none did; 2 wrong usage, 3 a host was lost or cannot
hold so many ranks, 124 --timeout passed, 127 the program could not be started.)";

Result<int> run(const RunArguments& arguments, const std::vector<std::string>& program) {
  LaunchJob job;
  job.program = program;
  if (job.program.empty()) return fail(Code::invalid_argument, "no program is given: tamaki run -n 4 -- program arguments");
  if (job.program[0].empty()) return fail(Code::invalid_argument, "the program after -- is \"\": tamaki run -n 4 -- program arguments");
  if (arguments.hosts.empty()) {
    const int ranks = arguments.ranks > 0 ? arguments.ranks : 1;
    job.parts = {{"", 0, ranks, 0, ranks}};
  } else {
    Result<std::vector<HostSlots>> hosts = parse_hosts(arguments.hosts);
    if (!hosts) return fail(hosts.error().code, "--hosts: " + hosts.error().message);
    Result<std::vector<HostPart>> parts = place_ranks(*hosts, arguments.ranks);
    if (!parts) return fail(parts.error().code, fmt::format("--hosts \"{}\": {}", arguments.hosts, parts.error().message));
    job.parts = std::move(*parts);
  }
  for (const std::string& line : arguments.environment) {
    if (line.empty() || line[0] == '=') return fail(Code::invalid_argument, fmt::format("--env \"{}\" is not NAME=text or NAME", line));
    const std::string name = line.substr(0, line.find('='));
    for (const char* ours : {"TAMAKI_RANK", "TAMAKI_SIZE", "TAMAKI_LOCAL_RANK", "TAMAKI_LOCAL_SIZE", "TAMAKI_RENDEZVOUS", "TAMAKI_SECRET"})
      if (name == ours) return fail(Code::invalid_argument, fmt::format("--env {}: the launcher gives each rank its own {}", line, name));
    const char* own = line.find('=') == std::string::npos ? std::getenv(line.c_str()) : nullptr;
    if (line.find('=') != std::string::npos) job.environment.push_back(line);
    else if (own != nullptr) job.environment.push_back(line + "=" + own);
    else return fail(Code::invalid_argument, fmt::format("--env {}: it is not set here; give {}=text", line, line));
  }
  job.remote_shell = arguments.remote_shell;
  job.remote_command = arguments.remote_command;
  job.bind = arguments.bind == "core" ? Bind::core : arguments.bind == "none" ? Bind::none : Bind::automatic;
  job.tag = arguments.no_tag ? LaunchJob::Tag::none : LaunchJob::Tag::rank;
  if (arguments.keep_going) job.on_failure = LaunchJob::OnFailure::keep_going;
  job.timeout_s = arguments.timeout_s;
  job.grace_s = arguments.grace_s;
  job.linger_s = arguments.linger_s;
  return launch(job);
}

}  // namespace

void add_run(CLI::App& app, const std::vector<std::string>& program, int* status) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* sub = app.add_subcommand("run", "Start a program as several ranks: tamaki run [OPTIONS] -- program arguments");
  sub->footer(kFooter);
  constexpr double kLongest = 1e9;  // seconds, some 30 years
  sub->add_option("-n,--ranks", arguments->ranks, "number of ranks (1; with --hosts: one a slot)")->transform(whole_number(1, kMostRanks));
  auto* hosts = sub->add_option("--hosts", arguments->hosts, "hosts with slots, e.g. a,b:4; ranks are placed in blocks")->check(not_empty());
  sub->add_option("--rsh", arguments->remote_shell, "remote shell, called with host and command line")->check(not_empty())->needs(hosts)->capture_default_str();
  sub->add_option("--remote-command", arguments->remote_command, "path of tamaki on the hosts (that of this one)")->check(not_empty())->needs(hosts);
  sub->add_option("--bind", arguments->bind, "core: round robin over the allowed cores; none; auto: core unless there are more ranks than cores on the host")
      ->check(CLI::IsMember({"auto", "core", "none"}))->capture_default_str();
  sub->add_option("--env", arguments->environment, "NAME=text, or NAME to hand on this value, for every rank; repeatable")
      ->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* no_tag = sub->add_flag("--no-tag", arguments->no_tag, "do not put [rank] before each line of output");
  sub->add_flag("--tag", arguments->tag, "put [rank] before each line of output (default)")->excludes(no_tag);
  sub->add_option("--timeout", arguments->timeout_s, "end the job after so many seconds, with status 124")->check(real_number(0.001, kLongest, "seconds"));
  sub->add_option("--grace", arguments->grace_s, "seconds between SIGTERM (or Ctrl-C) and SIGKILL")->check(real_number(0, kLongest, "seconds"))->capture_default_str();
  sub->add_option("--linger", arguments->linger_s, "seconds between the first failure and SIGTERM for the other ranks")->check(real_number(0, kLongest, "seconds"))->capture_default_str();
  sub->add_flag("--keep-going", arguments->keep_going, "a rank that fails does not end the others");
  sub->add_flag("--agent", arguments->agent)->group("");
  sub->allow_extras();
  sub->prefix_command();
  sub->callback([=] {
    if (arguments->agent) {
      *status = run_agent();
      return;
    }
    std::vector<std::string> words = program;
    if (words.empty()) words = sub->remaining();
    const std::vector<std::string> extra = sub->remaining();
    if (!extra.empty() && (!program.empty() || extra[0].compare(0, 1, "-") == 0)) {
      *status = report_error("run", {Code::invalid_argument, Scope::request, fmt::format("unknown argument \"{}\"; try `tamaki run --help`", extra[0])});
      return;
    }
    Result<int> result = run(*arguments, words);
    *status = result ? *result : report_error("run", result.error());
  });
}

}  // namespace tamaki::tools
