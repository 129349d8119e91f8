// tamaki info: what was found on this machine and why something was not; with --options every setting.
#include <fmt/format.h>
#include <signal.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "algorithms/algorithm.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "communicator/control.hpp"
#include "info/facts.hpp"
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
    Status ready = transport ? (*transport)->setup([](std::span<const std::byte> mine, std::span<std::byte> all) -> Status {
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
Examples:
  tamaki info
  tamaki info --options
  tamaki info --json - | python3 -m json.tool

Exit status: 0 in order, 2 wrong usage, 3 a setting in the environment is wrong (it is named).)";

int show_options(const InfoArguments& a) {
  const Result<const Options*> parsed = options();
  nlohmann::json j = nlohmann::json::array();
  std::string text;
  for (const OptionFact& f : option_facts()) {
    // Whoever can read the secret can join the job.
    const std::string value = f.name == "TAMAKI_SECRET" && !f.value.empty() ? "(set)" : f.value;
    text += fmt::format("{:<24} {:<24} {:<12} {}\n{:<24} {} {}; default {}\n", f.name, value.empty() ? "\"\"" : value, f.origin, f.help, "",
                        f.type, f.range, f.initial.empty() ? "\"\"" : f.initial);
    j.push_back({{"name", f.name}, {"value", value}, {"origin", f.origin}, {"type", f.type}, {"range", f.range}, {"default", f.initial}, {"help", f.help}});
  }
  if (!a.json.empty()) {
    if (Status written = write_file(a.json, j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"); !written)
      return report_error("info", written.error());
  }
  if (a.json != "-") fmt::print("{}", text);
  if (parsed) return kOk;
  fmt::print(stderr, "tamaki info: {}\n", parsed.error().message);
  return kRuntime;
}

int show(const InfoArguments& a) {
  if (a.options) return show_options(a);
  signal(SIGPIPE, SIG_DFL);
  const Section sections[] = {build_section(), machine_section(), memory_section(), network_section(),
                              transport_section(), algorithm_section(), mpi_section(), job_section()};
  nlohmann::json j;
  std::string text;
  for (const Section& section : sections) {
    text += section.name + "\n";
    for (const Fact& fact : section.facts) {
      text += fmt::format("  {:<28} {}\n", fact.name, fact.value);
      j[section.name][fact.name] = fact.value;
    }
  }
  if (!a.json.empty())
    if (Status written = write_file(a.json, j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"); !written)
      return report_error("info", written.error());
  if (a.json != "-") fmt::print("{}", text);
  const Result<const Options*> parsed = options();
  if (parsed) return kOk;
  fmt::print(stderr, "tamaki info: {}\n", parsed.error().message);
  return kRuntime;
}

}  // namespace

void add_info(CLI::App& app, int* status) {
  auto a = std::make_shared<InfoArguments>();
  CLI::App* sub = app.add_subcommand("info", "Say what was found here, what was not and why; --options: every setting");
  sub->footer(kFooter);
  sub->add_flag("--options", a->options, "every setting of the library: value, where it came from, range, default");
  sub->add_option("--json", a->json, "write to a file, or to stdout with -");
  sub->callback([=] { *status = show(*a); });
}

}  // namespace tamaki::tools
