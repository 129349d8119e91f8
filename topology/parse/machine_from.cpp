// machine_from(): every way to name a machine.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "topology/machine.hpp"
#include "topology/parse/catalogue.hpp"
#include "topology/parse/description.hpp"
#include "topology/parse/hwloc.hpp"
#include "topology/parse/nccl.hpp"

namespace tamaki {
namespace {

tl::unexpected<Error> wrong(std::string_view text, const std::string& why) {
  return fail(Code::invalid_argument, fmt::format("machine \"{}\": {}", text.substr(0, 200), why));
}

/// One size of a shape, "4", "4m" (no wrap) or "4t" (wrap); moves *text behind it.
bool take_size(std::string_view* text, TorusAxis* axis) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), axis->size);
  if (error != std::errc() || axis->size < 1) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  if (text->starts_with('m') || text->starts_with('t')) {
    axis->wraps = text->front() == 't';
    text->remove_prefix(1);
  }
  return true;
}

/// "4x4x2m". Empty where it is no shape, or has more than kMostAxes sizes.
std::vector<TorusAxis> parse_shape(std::string_view text, bool wraps) {
  std::vector<TorusAxis> axes;
  while (true) {
    TorusAxis axis;
    axis.wraps = wraps;
    if (!take_size(&text, &axis) || axes.size() == static_cast<std::size_t>(kMostAxes)) return {};
    axes.push_back(axis);
    if (text.empty()) return axes;
    if (text.front() != 'x') return {};
    text.remove_prefix(1);
  }
}

Result<Machine> checked(Result<Machine> made, std::string_view text) {
  if (!made) return made;
  if (Status good = check(*made); !good) return wrong(text, good.error().message);
  return made;
}

Result<Machine> grid_named(std::string_view text, std::string_view shape, bool wraps) {
  std::vector<TorusAxis> axes = parse_shape(shape, wraps);
  if (axes.empty())
    return wrong(text, fmt::format("\"{}\" is no shape; it takes 1 to {} sizes above 0, as 8x8x8 or 4x4x2m "
                                   "(m: a mesh in that dimension, t: a torus)",
                                   shape, kMostAxes));
  std::int64_t points = 1;
  for (const TorusAxis& axis : axes)
    if ((points *= axis.size) > kMostHosts)
      return wrong(text, fmt::format("more than {} hosts", kMostHosts));
  return checked(torus_machine(std::move(axes)), text);
}

/// "100x8" -> two numbers.
bool two_sizes(std::string_view text, std::int32_t* hosts, std::int32_t* each) {
  const std::vector<TorusAxis> sizes = parse_shape(text, true);
  if (text.find_first_of("mt") != std::string_view::npos || sizes.size() != 2) return false;
  *hosts = sizes[0].size;
  *each = sizes[1].size;
  return true;
}

bool is_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json") || text.ends_with(".xml");
}

Result<Machine> from_text(std::string_view text, std::string_view file,
                          std::span<const std::int32_t> shape) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string_view::npos)
    return fail(Code::invalid_argument, fmt::format("{}:1: is empty", file));
  text.remove_prefix(first == 3 && text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  if (text[text.find_first_not_of(" \t\r\n")] != '<') return machine_from_json(text, file, shape);
  if (!shape.empty())
    return fail(Code::invalid_argument, fmt::format("{}: a host in XML takes no shape", file));
  // The root element tells the two apart; both may start with a declaration and comments.
  if (text.find("<system") < text.find("<topology")) return machine_from_nccl_xml(text, file);
  return machine_from_hwloc_xml(text, file);
}

Result<Machine> from_path(std::string_view text) {
  Result<std::string> content = read_description_file(std::string(text));
  if (!content) return pass(std::move(content));
  return from_text(*content, text, {});
}

Result<Machine> from_catalogue(std::string_view text, std::string_view name, std::string_view rest) {
  std::vector<std::int32_t> shape;
  if (!rest.empty()) {
    for (const TorusAxis& axis : parse_shape(rest, true)) shape.push_back(axis.size);
    if (shape.empty() || rest.find_first_of("mt") != std::string_view::npos)
      return wrong(text, fmt::format("\"{}\" is no shape, as 48x6x48", rest));
  }
  Result<std::optional<FoundDescription>> found = find_description(name);
  if (!found) return pass(std::move(found));
  if (!*found)
    return wrong(text,
                 fmt::format("there is no such machine. There are torus:8x8x8, mesh:4x4, rails:100x8, "
                             "hosts:4x2, {}, and paths of files (with a '/', .json or .xml)",
                             fmt::join(description_names(), ", ")));
  return machine_from_json((*found)->text, (*found)->file, shape);
}

}  // namespace

Result<Machine> machine_from(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return fail(Code::invalid_argument, "no machine is named");
  if (text[first] == '{' || text[first] == '<') return from_text(text, "text", {});
  if (is_path(text)) return from_path(text);
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view rest =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) return wrong(text, "nothing follows the colon");
  if (name == "torus" || name == "mesh") return grid_named(text, rest, name == "torus");
  if (name == "rails" || name == "hosts") {
    std::int32_t hosts = 0, each = 0;
    if (!two_sizes(rest, &hosts, &each) || hosts > kMostHosts || each > kMostParts)
      return wrong(text, fmt::format("\"{}\" is not HOSTSx{}, with up to {} hosts of up to {}", rest,
                                     name == "rails" ? "GPUS" : "RANKS", kMostHosts, kMostParts));
    return checked(name == "rails" ? rail_machine(hosts, each) : switch_machine(hosts, each), text);
  }
  return from_catalogue(text, name, rest);
}

}  // namespace tamaki
