#pragma once
// XML as a tree that knows the line of every element: hwloc's and NCCL's topologies, MSCCL's schedules.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace tamaki {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes = {};
  std::vector<XmlElement> children = {};
  std::int32_t line = 0;

  /// nullptr where there is none.
  const std::string* attribute(std::string_view attribute_name) const;
};

/// The root element. Text between elements and comments are left out; references to entities of the
/// document's own declarations are refused. Limits: 64 MiB, 64 levels, a million elements. Errors
/// (Code::invalid_argument) begin with "FILE:LINE: ".
Result<XmlElement> parse_xml(std::string_view text, std::string_view file);

/// `text` with &, <, >, " and ' written as XML wants them in an attribute.
std::string xml_escape(std::string_view text);

}  // namespace tamaki
