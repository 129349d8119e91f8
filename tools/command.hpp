#pragma once
// The `tamaki` command: one file a subcommand. Each add_* declares its subcommand on the parser and, when that is the
// one given, leaves the exit status in *status. docs/command.md is the user's side of this.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tamaki::tools {

/// Exit status of every subcommand but `run`, which passes its program's status on.
enum ExitStatus : int {
  kOk = 0,
  kFinding = 1,  // a check failed or a finding was reported
  kUsage = 2,    // the command line is wrong
  kRuntime = 3,  // the machine or the library refused
};

void add_run(CLI::App& app, const std::vector<std::string>& program, int* status);
void add_perf(CLI::App& app, const std::vector<std::string>& arguments, int* status);
void add_verify(CLI::App& app, int* status);
void add_draw(CLI::App& app, int* status);
void add_print(CLI::App& app, int* status);
void add_info(CLI::App& app, int* status);
void add_topo(CLI::App& app, int* status);
void add_simulate(CLI::App& app, int* status);
void add_explain(CLI::App& app, int* status);

/// Prints "tamaki <subcommand>: <message>" to stderr; returns kUsage for arguments that were wrong, else kRuntime.
int report_error(const char* subcommand, const Error& error);
/// "a,b,c" without empty parts.
std::vector<std::string> split_list(const std::string& text);

}  // namespace tamaki::tools
