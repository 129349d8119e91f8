#pragma once
// Where ranks go: "a,b:4" and a number of ranks -> a part of the ranks for each host. And words of a shell.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tamaki::tools {

struct HostSlots {
  std::string name;
  int slots = 0;  // 0: not given
};

/// The consecutive ranks [first_rank, first_rank + ranks) that one agent starts. A host named twice has two parts,
/// whose local ranks follow each other.
struct HostPart {
  std::string host;  // empty: this machine, without a remote shell
  int first_rank = 0;
  int ranks = 0;
  int first_local = 0;
  int local_size = 0;
};

/// "a,b:4,[fe80::1]:2". An error names the part that is wrong.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);

/// Ranks in blocks, in the order of hosts. ranks 0: as many as there are slots (a host without slots has one). Hosts
/// without slots share evenly what those with slots leave. An error says how many ranks and slots there are.
Result<std::vector<HostPart>> place_ranks(const std::vector<HostSlots>& hosts, int ranks);

/// Words of a command as a shell would cut them: blanks, '...', "...", backslash; no expansion.
Result<std::vector<std::string>> shell_words(std::string_view text);
/// One word for a POSIX shell, quoted where needed.
std::string shell_quote(std::string_view word);

}  // namespace tamaki::tools
