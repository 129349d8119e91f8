#pragma once
// Checks of what is given on the command line: each message names the text and what would be right; CLI11
// puts the option's name in front.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace tamaki::tools {

/// Most ranks of a job.
inline constexpr std::int64_t kMostRanks = 1 << 24;

/// A decimal number in low..high. For Option::transform: leading zeros go, so that nobody reads them as
/// octal.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

/// A decimal number in low..high, neither NaN nor infinite. `unit`: "seconds", or "" for a plain number.
CLI::Validator real_number(double low, double high, const char* unit);

/// Anything but "".
CLI::Validator not_empty();

/// "unknown WHAT \"NAME\"; there are A, B", with a guess in front where one of the known names is near.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known);

}  // namespace tamaki::tools
