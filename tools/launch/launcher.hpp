#pragma once
// The launcher: one agent a host, their output in whole lines, signals handed on, and the first failure ends the rest.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "launch/agent.hpp"
#include "launch/hosts.hpp"

namespace tamaki::tools {

struct LaunchJob {
  std::vector<std::string> program;      // argv of every rank
  std::vector<HostPart> parts;           // host "" and "localhost": this machine
  std::vector<std::string> environment;  // "NAME=text" for every rank
  std::string remote_shell = "ssh -T -o BatchMode=yes";  // called with the host and one command line
  std::string remote_command;            // path of `tamaki` on the hosts; empty: that of this one
  Bind bind = Bind::automatic;
  enum class Tag { none, rank } tag = Tag::rank;
  enum class OnFailure { end_others, keep_going } on_failure = OnFailure::end_others;
  enum class Input { rank_0, none } input = Input::rank_0;  // who gets the launcher's stdin
  std::string caller = "tamaki run";     // for messages
  /// told_if_unusual: ranks that exit with 1..3 have said why themselves.
  enum class Ends { told, told_if_unusual } ends = Ends::told;
  double timeout_s = 0;  // of the whole job; 0: none
  double linger_s = 0;   // from the first failure to SIGTERM for the others, so that they can report
  double grace_s = 5;    // from SIGTERM (or a user's SIGINT) to SIGKILL
};

inline constexpr int kTimedOut = 124;    // as timeout(1)
inline constexpr int kCannotRun = 127;   // as sh: the program could not be started

/// Runs the job to its end. Exit status: that of the first rank that failed (128 + number for a signal), 0 where none
/// did, kTimedOut, kCannotRun, or kRuntime where a host was lost. Errors of the launcher itself (no remote shell,
/// descriptors) are errors.
Result<int> launch(const LaunchJob& job);

/// Absolute path of the running `tamaki`.
Result<std::string> own_path();

}  // namespace tamaki::tools
