// tamaki info: what was found on this machine and why something was not; with --options every setting.
#include <fmt/format.h>
#include <signal.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "algorithms/algorithm.hpp"
#include "arguments.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "communicator/control.hpp"
#include "info/facts.hpp"
#include "info/settings.hpp"
#include "output_file.hpp"
#include "transports/transport.hpp"

namespace tamaki::tools {

Section transport_section() {
  Section s{"transports", {}};
  const RankIdentity own = own_identity();
  const std::byte secret[32] = {};
  Bell bell;
  for (const TransportEntry& entry : all_transports()) {
    TransportContext context;
    context.ranks = std::span(&own, 1);
    context.secret = secret;
    context.slot_bytes = 4096;
    context.own_bell = &bell;
    Result<std::unique_ptr<Transport>> transport = entry.open(context);
    Status ready =
        transport
            ? (*transport)->setup([](std::span<const std::byte> mine, std::span<std::byte> all) -> Status {
                std::memcpy(all.data(), mine.data(), mine.size());
                return {};
              })
            : Status(tl::unexpected<Error>(transport.error()));
    std::string text = ready ? "available" : "not available: " + ready.error().message;
    if (ready)
      for (const auto& [name, value] : (*transport)->facts())
        if (!value.empty()) text += fmt::format("; {} {}", name, value);
    s.facts.push_back({std::string(entry.name), text});
  }
  return s;
}

Section algorithm_section() {
  Section s{"algorithms", {}};
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    s.facts.push_back({std::string(name_of(collective)), algorithm_names(collective)});
  }
  return s;
}

namespace {

struct InfoArguments {
  bool options = false;
  std::string json;
};

constexpr const char* kFooter = R"(
A setting in the environment that is wrong is named, with what would be right, beside it and on stderr.

Examples:
  tamaki info
  tamaki info --options
  tamaki info --json - | python3 -m json.tool

Exit status: 0 in order, 2 wrong usage or a setting that is wrong, 3 the file of --json cannot be written.)";

/// The settings that are not left alone, each with what is wrong with it.
Section settings_section(const std::vector<Setting>& settings) {
  Section s{"settings", {}};
  for (const Setting& setting : settings) {
    if (setting.fact.origin == "default" && setting.error.empty()) continue;
    const std::string text = setting.fact.origin == "default" ? "not set"
                             : setting.fact.value.empty()     ? "\"\""
                                                              : setting.fact.value;
    s.facts.push_back({std::string(setting.fact.name),
                       setting.error.empty() ? text : text + "  WRONG: " + setting.error});
  }
  if (s.facts.empty()) s.facts.push_back({"all", "at their defaults (tamaki info --options lists them)"});
  return s;
}

void add_options(const std::vector<Setting>& settings, std::string* text, nlohmann::json* j) {
  *j = nlohmann::json::array();
  for (const auto& [f, error] : settings) {
    *text += fmt::format("{:<24} {:<24} {:<12} {}\n{:<24} {} {}; default {}\n", f.name,
                         f.value.empty() ? "\"\"" : f.value, f.origin, f.help, "", f.type, f.range,
                         f.initial.empty() ? "\"\"" : f.initial);
    if (!error.empty()) *text += fmt::format("{:<24} WRONG: {}\n", "", error);
    j->push_back({{"name", f.name},
                  {"value", f.value},
                  {"origin", f.origin},
                  {"type", f.type},
                  {"range", f.range},
                  {"default", f.initial},
                  {"help", f.help}});
    if (!error.empty()) j->back()["error"] = error;
  }
}

void add_facts(const std::vector<Setting>& settings, std::string* text, nlohmann::json* j) {
  const Section sections[] = {build_section(),   machine_section(),   memory_section(),
                              network_section(), transport_section(), algorithm_section(),
                              mpi_section(),     job_section(),       settings_section(settings)};
  for (const Section& section : sections) {
    *text += section.name + "\n";
    for (const Fact& fact : section.facts) {
      *text += fmt::format("  {:<28} {}\n", fact.name, fact.value);
      (*j)[section.name][fact.name] = fact.value;
    }
  }
}

int show(const InfoArguments& a) {
  signal(SIGPIPE, SIG_DFL);
  OutputFile json;
  if (Status opened = json.open("--json", a.json); !opened) return report_error("info", opened.error());
  (void)options();  // warns of TAMAKI_* variables that do not exist
  const std::vector<Setting> settings = judged_settings();
  nlohmann::json j;
  std::string text;
  (a.options ? add_options : add_facts)(settings, &text, &j);
  if (Status written = json.write(j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      !written)
    return report_error("info", written.error());
  if (a.json != "-") fmt::print("{}", text);
  std::fflush(stdout);
  std::vector<std::string> errors;
  for (const Setting& setting : settings)
    if (!setting.error.empty()) errors.push_back(setting.error);
  if (const std::string error = launcher_error(); !error.empty()) errors.push_back(error);
  for (const std::string& error : errors) fmt::print(stderr, "tamaki info: {}\n", error);
  return errors.empty() ? kOk : kUsage;
}

}  // namespace

void add_info(CLI::App& app, int* status) {
  auto a = std::make_shared<InfoArguments>();
  CLI::App* sub =
      app.add_subcommand("info", "Say what was found here, what was not and why; --options: every setting");
  sub->footer(kFooter);
  sub->add_flag("--options", a->options,
                "every setting of the library: value, where it came from, range, default");
  sub->add_option("--json", a->json, "write to a file, or to stdout with - instead of text")
      ->check(not_empty());
  sub->callback([=] { *status = show(*a); });
}

}  // namespace tamaki::tools
