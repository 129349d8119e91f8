#pragma once
// Descriptions by name: those of topology/clusters/, which are compiled in, and those of folders.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

struct NamedDescription {
  std::string_view name;  // "fugaku"
  std::string_view text;
};
/// The compiled-in descriptions, sorted by name (made by topology/clusters/embed.cmake).
std::span<const NamedDescription> embedded_descriptions();

/// A description's text and where it is from, for error messages.
struct FoundDescription {
  std::string text, file;
};
/// NAME.json in TAMAKI_CLUSTERS (folders, colon-separated), then in share/tamaki/clusters of this
/// installation, then compiled in. Nothing: there is no such name. Errors: a file is there and cannot be
/// read.
Result<std::optional<FoundDescription>> find_description(std::string_view name);
/// Every name that find_description knows, sorted.
std::vector<std::string> description_names();

/// The whole of a file. Errors: it cannot be read (Code::system), it is longer than kMostDescriptionBytes.
Result<std::string> read_description_file(const std::string& path);

/// machine_from_json with the names of the descriptions that are being read, to find cycles of "like".
Result<Machine> read_description(std::string_view text, std::string_view file,
                                 std::span<const std::int32_t> shape, std::vector<std::string>* chain);

}  // namespace tamaki
