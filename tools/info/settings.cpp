#include "info/settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "algorithms/algorithm.hpp"
#include "arguments.hpp"
#include "base/socket.hpp"
#include "communicator/bootstrap/environment.hpp"
#include "select/select.hpp"
#include "select/tuning.hpp"
#include "transports/transport.hpp"

namespace tamaki::tools {
namespace {

constexpr std::string_view kLaunch[] = {"TAMAKI_RANK",       "TAMAKI_SIZE",       "TAMAKI_LOCAL_RANK",
                                        "TAMAKI_LOCAL_SIZE", "TAMAKI_RENDEZVOUS", "TAMAKI_SECRET"};

std::string message_of(const Status& status) { return status ? std::string() : status.error().message; }

/// Algorithm rules: the collective whose name the variable ends with, in lower case.
std::string rules_error(std::string_view name, const std::string& text) {
  std::string collective;
  for (const char c : name.substr(std::string_view("TAMAKI_").size()))
    collective += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto parsed = parse_collective(collective);
  if (!parsed) return {};
  auto rules = parse_rules(*parsed, text);
  if (!rules) return rules.error().message;
  return message_of(load_files(*parsed, &*rules));
}

/// host:port, without asking what the host's name means.
std::string rendezvous_error(const std::string& text) {
  const auto colon = text.rfind(':');
  int port = 0;
  const char* end = text.data() + text.size();
  const auto r =
      std::from_chars(text.data() + (colon == std::string::npos ? text.size() : colon + 1), end, port);
  if (colon == std::string::npos || colon == 0) return "it is not host:port";
  if (r.ec != std::errc{} || r.ptr != end || port < 1 || port > 65535)
    return fmt::format("\"{}\" is not a port in 1..65535", text.substr(colon + 1));
  if (text.find(':') != colon && (text[0] != '[' || text[colon - 1] != ']'))
    return "an IPv6 address is written [address]:port";
  return {};
}

/// A tuning table: it need not be there, but where it is it must be one.
std::string tuning_error(const std::string& text) {
  const Result<TuningTable> table = read_tuning(tuning_path(text));
  return table ? std::string() : table.error().message;
}

/// A path whose file the library will make: its folder must be there and let files be made.
std::string path_error(const std::string& text) {
  const auto slash = text.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : text.substr(0, slash);
  if (folder.find('%') != std::string::npos) return {};  // not known before the rank is
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return fmt::format("no file can be made in \"{}\": {}", folder, std::strerror(errno));
}

/// TAMAKI_RANK and the like, as one: the message names the variables.
std::string place_error() {
  const Result<bootstrap::Launch> launch = bootstrap::detect_launch(&environment_variable);
  return launch ? std::string() : launch.error().message;
}

/// TAMAKI_LOCAL_RANK < TAMAKI_LOCAL_SIZE <= TAMAKI_SIZE, as far as they are set and numbers.
std::string local_error(std::string_view name, const Options& own) {
  const auto set = [](const char* variable) { return !environment_variable(variable).empty(); };
  if (name == "TAMAKI_LOCAL_RANK" && own.local_rank >= 0 && set("TAMAKI_LOCAL_SIZE") &&
      own.local_rank >= own.local_size)
    return fmt::format("it is not in 0..{} (TAMAKI_LOCAL_SIZE={})", own.local_size - 1, own.local_size);
  if (name == "TAMAKI_LOCAL_SIZE" && own.local_size >= 0 && set("TAMAKI_SIZE") && own.local_size > own.size)
    return fmt::format("a host cannot have more ranks than the job (TAMAKI_SIZE={})", own.size);
  return {};
}

/// What the text means, once it is in the option's range.
std::string meaning_error(const OptionFact& fact, const std::string& text, const Options& own) {
  if (fact.name == "TAMAKI_TRANSPORTS") return message_of(check_transports(text));
  if (fact.range == "rules") return rules_error(fact.name, text);
  if (text.empty()) return {};
  if (fact.name == "TAMAKI_INTERFACES") {
    const auto chosen = chosen_interfaces();
    if (chosen) return {};
    const std::string &message = chosen.error().message,
                      own_name = fmt::format("TAMAKI_INTERFACES=\"{}\": ", text);
    return message.compare(0, own_name.size(), own_name) == 0 ? message.substr(own_name.size()) : message;
  }
  if (fact.name == "TAMAKI_RENDEZVOUS") return rendezvous_error(text);
  if (fact.name == "TAMAKI_TUNING") return tuning_error(text);
  if (fact.range == "path") return path_error(text);
  if (fact.name == "TAMAKI_MPI_MIN_BYTES" && own.mpi_min_bytes > own.mpi_max_bytes)
    return fmt::format("it is above TAMAKI_MPI_MAX_BYTES={}: no message would be taken",
                       format_bytes(own.mpi_max_bytes));
  return local_error(fact.name, own);
}

}  // namespace

Status check_transports(std::string_view text) {
  if (text.empty())
    return fail(Code::invalid_argument, "no transport is given; there are " + transport_names());
  std::vector<std::string> known;
  for (const TransportEntry& entry : all_transports()) known.emplace_back(entry.name);
  for (bool last = false; !last;) {
    const auto comma = text.find(',');
    const std::string name(text.substr(0, comma));
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fail(Code::invalid_argument, unknown_name("transport", name, known));
    last = comma == std::string_view::npos;
    if (!last) text.remove_prefix(comma + 1);
  }
  return {};
}

std::vector<Setting> judged_settings() {
  std::vector<Setting> settings;
  std::vector<std::string> good;  // "NAME=text" of those in their range
  for (const OptionFact& fact : option_facts()) {
    Setting setting{fact, {}};
    if (fact.origin == "environment") {
      // One by one: a wrong one must not hide the others.
      setting.fact.value = environment_variable(std::string(fact.name).c_str());
      const std::string line = fmt::format("{}={}", fact.name, setting.fact.value);
      setting.error = [&] {
        const Result<Options> alone = parse_options({line});
        return alone ? std::string() : alone.error().message;
      }();
      if (setting.error.empty()) good.push_back(line);
    } else {
      setting.fact.value = fact.initial;
    }
    settings.push_back(std::move(setting));
  }
  const Result<Options> own = parse_options(good);
  const std::string place = place_error();
  for (Setting& setting : settings) {
    OptionFact& fact = setting.fact;
    if (fact.origin == "environment" && setting.error.empty() && own) {
      const std::string why = meaning_error(fact, fact.value, *own);
      if (!why.empty()) setting.error = fmt::format("{}=\"{}\": {}", fact.name, fact.value, why);
    }
    // Beside the variable that the message begins with, which may be one that is missing.
    const bool launch = std::find(std::begin(kLaunch), std::end(kLaunch), fact.name) != std::end(kLaunch);
    const bool meant =
        place.compare(0, fact.name.size(), fact.name) == 0 && place.find_first_of("= ") == fact.name.size();
    if (launch && meant && setting.error.empty()) setting.error = place;
    // Whoever can read the secret can join the job.
    if (fact.name == "TAMAKI_SECRET" && !fact.value.empty()) fact.value = "(set)";
  }
  return settings;
}

std::string launcher_error() {
  const std::string place = place_error();
  return place.compare(0, 7, "TAMAKI_") == 0 ? std::string() : place;
}

}  // namespace tamaki::tools
