#pragma once
// The settings of this process's environment, each judged: its range, the names that it gives, and whether
// it agrees with the others.

#include <string>
#include <string_view>
#include <vector>

#include "base/options.hpp"
#include "base/result.hpp"

namespace tamaki::tools {

struct Setting {
  OptionFact fact;  // value: the text in force; of a secret only that it is set
  std::string
      error;  // empty: in order; else what is wrong, naming the variable, its text and what would be right
};

/// Every option of the library, in the table's order. Nothing is changed or connected to; interfaces are
/// looked up.
std::vector<Setting> judged_settings();

/// What is wrong with the variables of another launcher (Open MPI's, Hydra's, Slurm's, torchrun's) around
/// this process; empty: nothing. Those of `tamaki run` are settings.
std::string launcher_error();

/// "shm,tcp": error where a name does not exist; it lists those that do.
Status check_transports(std::string_view text);

}  // namespace tamaki::tools
