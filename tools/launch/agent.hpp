#pragma once
// The agent: starts and watches the ranks of one host for the launcher. `tamaki run --agent` is this and nothing else;
// the launcher starts one on each host, its own included, so that one path serves both.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tamaki::tools {

enum class Bind { automatic, core, none };

/// One host's part of a job, as it travels.
struct AgentJob {
  std::vector<std::string> program;      // argv of every rank
  std::vector<std::string> environment;  // "NAME=text", added to the agent's own
  std::string directory;                 // where ranks start; the home directory where it does not exist
  int ranks = 1;                         // of the whole job
  int first_rank = 0;
  int local_ranks = 1;                   // that this agent starts
  int first_local = 0;
  int local_size = 1;                    // ranks of the job on this host
  Bind bind = Bind::automatic;
};

/// Fields separated by NUL (no argument or variable can hold one).
std::string encode_job(const AgentJob& job);
Result<AgentJob> decode_job(std::string_view text);

/// Cores for local ranks, round robin: those this process may use, one hardware thread of each core first. Empty
/// where ranks shall not be bound (`none`; `automatic` with more local ranks than cores).
std::vector<int> cores_for(Bind bind, int local_size);

/// Serves one job on descriptors 0 and 1. Exit status of the agent process.
int run_agent();

}  // namespace tamaki::tools
