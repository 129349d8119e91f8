#pragma once
// Every setting of the library: one table (options.def), one parser, and for each value where it came from.
// The environment is read here and nowhere else.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tamaki {

using option_integer = std::int64_t;
using option_bytes = std::uint64_t;
using option_flag = bool;
using option_text = std::string;
using option_choice = std::string;

struct Options {
#define TAMAKI_OPTION(type, member, name, initial, range, help) option_##type member{};
#include "base/options.def"
#undef TAMAKI_OPTION
};

struct OptionFact {
  std::string_view name;     // TAMAKI_...
  std::string_view type;
  std::string_view initial;
  std::string_view range;
  std::string_view help;
  std::string value;         // text of the value in force
  std::string origin;        // "default" or "environment"
};

/// The options of this process, parsed from the environment at first use. An error names variable, text and range;
/// it is the same at every call.
Result<const Options*> options();
/// Parses anew from `environment` ("NAME=text" lines); for tests and for options().
Result<Options> parse_options(const std::vector<std::string>& environment, std::vector<std::string>* unknown = nullptr);
/// All options with value and origin, for `tamaki info --options`.
std::vector<OptionFact> option_facts();
/// A variable of another program (launchers). Empty if unset.
std::string environment_variable(const char* name);

/// "4096", "16K", "100M", "2G": binary suffixes.
Result<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);

}  // namespace tamaki
