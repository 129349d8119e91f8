#include "base/xml.hpp"

#include <expat.h>
#include <fmt/format.h>

#include <memory>

namespace tamaki {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostLevels = 64;
constexpr std::size_t kMostElements = 1'000'000;

struct Build {
  XML_Parser parser = nullptr;
  XmlElement root;
  std::vector<XmlElement*> open;  // a parent's children grow only while its newest child is closed
  std::size_t elements = 0;
  std::string error;

  void stop(const std::string& text) {
    if (!error.empty()) return;
    error = text;
    XML_StopParser(parser, XML_FALSE);
  }
};

void on_start(void* data, const XML_Char* name, const XML_Char** attributes) {
  auto* build = static_cast<Build*>(data);
  if (++build->elements > kMostElements)
    return build->stop(fmt::format("more than {} elements", kMostElements));
  if (build->open.size() >= kMostLevels)
    return build->stop(fmt::format("elements {} deep", kMostLevels + 1));
  XmlElement* element = &build->root;
  if (!build->open.empty()) {
    build->open.back()->children.emplace_back();
    element = &build->open.back()->children.back();
  }
  element->name = name;
  element->line = static_cast<std::int32_t>(XML_GetCurrentLineNumber(build->parser));
  for (; *attributes != nullptr; attributes += 2)
    element->attributes.emplace_back(attributes[0], attributes[1]);
  build->open.push_back(element);
}

void on_end(void* data, const XML_Char*) {
  auto* build = static_cast<Build*>(data);
  if (!build->open.empty()) build->open.pop_back();
}

/// Entities of the file's own making are how a small file becomes a large one.
void on_entity(void* data, const XML_Char* name, int, const XML_Char*, int, const XML_Char*,
               const XML_Char*, const XML_Char*, const XML_Char*) {
  static_cast<Build*>(data)->stop(fmt::format("declares entity \"{}\"; entities are not taken", name));
}

}  // namespace

const std::string* XmlElement::attribute(std::string_view attribute_name) const {
  for (const auto& [own, value] : attributes)
    if (own == attribute_name) return &value;
  return nullptr;
}

Result<XmlElement> parse_xml(std::string_view text, std::string_view file) {
  if (text.size() > kMostBytes)
    return fail(Code::invalid_argument,
                fmt::format("{}:1: {} bytes of XML; at most {} are read", file, text.size(), kMostBytes));
  Build build;
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate(nullptr),
                                                                            &XML_ParserFree);
  if (parser == nullptr)
    return fail(Code::out_of_memory, fmt::format("{}: no memory for the XML parser", file));
  build.parser = parser.get();
  XML_SetUserData(parser.get(), &build);
  XML_SetElementHandler(parser.get(), on_start, on_end);
  XML_SetEntityDeclHandler(parser.get(), on_entity);
  if (XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE) == XML_STATUS_ERROR) {
    const std::string why =
        build.error.empty() ? XML_ErrorString(XML_GetErrorCode(parser.get())) : build.error;
    return fail(Code::invalid_argument,
                fmt::format("{}:{}: {}", file, XML_GetCurrentLineNumber(parser.get()), why));
  }
  return std::move(build.root);
}

std::string xml_escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&apos;";
        break;
      default:
        escaped += c;
    }
  return escaped;
}

}  // namespace tamaki
