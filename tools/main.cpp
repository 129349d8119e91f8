// The `tamaki` command.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "arguments.hpp"
#include "command.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::tools {

int report_error(const char* subcommand, const Error& error) {
  fmt::print(stderr, "tamaki {}: {}\n", subcommand, error.message);
  return error.code == Code::invalid_argument ? kUsage : kRuntime;
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
`tamaki run` passes the status of its program on, and has 124 for --timeout and 127 for a program that cannot be started.)";

std::vector<std::string> subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

/// The first word that is no option must be a subcommand, also where help is asked for.
std::string unknown_subcommand(const CLI::App& app, const std::vector<std::string>& own) {
  const auto word = std::find_if(own.begin(), own.end(),
                                 [](const std::string& text) { return text.empty() || text[0] != '-'; });
  const std::vector<std::string> known = subcommands(app);
  if (word == own.end() || std::find(known.begin(), known.end(), *word) != known.end()) return {};
  return unknown_name("subcommand", *word, known);
}

int report_usage(const std::string& subcommand, const std::string& message) {
  fmt::print(stderr, "tamaki{}: {}\nTry `tamaki{} --help`.\n", subcommand, message, subcommand);
  return kUsage;
}

int run_command(int argc, char** argv) {
  // What follows "--" is a program of its own, with options of its own.
  std::vector<std::string> own, program;
  int i = 1;
  for (; i < argc && std::strcmp(argv[i], "--") != 0; ++i) own.emplace_back(argv[i]);
  const bool cut = i < argc;
  for (++i; i < argc; ++i) program.emplace_back(argv[i]);

  int status = kOk;
  CLI::App app("Tamaki: topology-aware collective communication", "tamaki");
  app.set_version_flag("--version", fmt::format("tamaki {}.{}.{}", TMK_MAJOR, TMK_MINOR, TMK_PATCH),
                       "print the version");
  app.footer(kFooter);
  app.require_subcommand(1);
  add_run(app, program, &status);
  add_perf(app, own, &status);
  add_verify(app, &status);
  add_draw(app, &status);
  add_print(app, &status);
  add_info(app, &status);
  add_topo(app, &status);
  add_simulate(app, &status);
  add_explain(app, &status);
  if (const std::string unknown = unknown_subcommand(app, own); !unknown.empty())
    return report_usage("", unknown);
  if (own.empty())
    return report_usage(
        "", fmt::format("no subcommand is given; there are {}", fmt::join(subcommands(app), ", ")));
  const auto named = [&] {
    const auto given = app.get_subcommands();
    return given.empty() ? std::string() : " " + given.front()->get_name();
  };
  if (cut && !own.empty() && own.front() != "run")
    return report_usage(own.front()[0] == '-' ? "" : " " + own.front(),
                        "only `tamaki run` takes a program after --");
  try {
    std::vector<std::string> reversed(own.rbegin(), own.rend());  // CLI11 wants them so
    app.parse(reversed);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string message = e.what();
    constexpr std::string_view kRepeated = "At Most 1 required but received ";
    if (const auto at = message.find(kRepeated); at != std::string::npos)
      message = fmt::format("{}it is given {} times; at most once", message.substr(0, at),
                            message.substr(at + kRepeated.size()));
    return report_usage(named(), message);
  }
  // Output that got lost must not look like success.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status == kOk) {
    fmt::print(stderr, "tamaki{}: writing to stdout: {}\n", named(), std::strerror(errno));
    return kRuntime;
  }
  return status;
}

}  // namespace
}  // namespace tamaki::tools

int main(int argc, char** argv) {
  try {
    return tamaki::tools::run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("tamaki: out of memory\n", stderr);
    return tamaki::tools::kRuntime;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tamaki: %s\n", e.what());
    return tamaki::tools::kRuntime;
  }
}
