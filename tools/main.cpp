// The `tamaki` command.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "command.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::tools {

int report_error(const char* subcommand, const Error& error) {
  fmt::print(stderr, "tamaki {}: {}\n", subcommand, error.message);
  return error.code == Code::invalid_argument ? kUsage : kRuntime;
}

Status write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0) return fail_errno("writing to stdout");
    return {};
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return fail_errno("writing " + path);
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) return fail_errno("writing " + path);
  return {};
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

constexpr const char* kFooter = R"(
`tamaki SUBCOMMAND --help` explains one, with examples.

Exit status: 0 in order, 1 a check failed or something was found, 2 wrong usage, 3 the machine or the library refused.
`tamaki run` passes the status of its program on.)";

int run_command(int argc, char** argv) {
  // What follows "--" is a program of its own, with options of its own.
  std::vector<std::string> own, program;
  int i = 1;
  for (; i < argc && std::strcmp(argv[i], "--") != 0; ++i) own.emplace_back(argv[i]);
  for (++i; i < argc; ++i) program.emplace_back(argv[i]);

  int status = kOk;
  CLI::App app("Tamaki: topology-aware collective communication", "tamaki");
  app.set_version_flag("--version", fmt::format("tamaki {}.{}.{}", TMK_MAJOR, TMK_MINOR, TMK_PATCH), "print the version");
  app.footer(kFooter);
  app.require_subcommand(1);
  add_run(app, program, &status);
  add_perf(app, own, &status);
  add_verify(app, &status);
  add_draw(app, &status);
  add_print(app, &status);
  add_info(app, &status);
  try {
    std::vector<std::string> reversed(own.rbegin(), own.rend());  // CLI11 wants them so
    app.parse(reversed);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const auto given = app.get_subcommands();
    const std::string name = given.empty() ? "" : " " + given.front()->get_name();
    fmt::print(stderr, "tamaki{}: {}\nTry `tamaki{} --help`.\n", name, e.what(), name);
    return kUsage;
  }
  return status;
}

}  // namespace
}  // namespace tamaki::tools

int main(int argc, char** argv) {
  try {
    return tamaki::tools::run_command(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tamaki: %s\n", e.what());
    return tamaki::tools::kRuntime;
  }
}
