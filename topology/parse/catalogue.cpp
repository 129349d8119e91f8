#include "topology/parse/catalogue.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/options.hpp"
#include "topology/parse/description.hpp"

namespace tamaki {
namespace {

namespace fs = std::filesystem;

/// share/tamaki/clusters in a folder above this library (lib/libtamaki.so, lib/<triplet>/..., bin/tamaki).
fs::path installed_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&embedded_descriptions), &self) == 0 ||
      self.dli_fname == nullptr)
    return {};
  std::error_code error;
  fs::path at = fs::canonical(self.dli_fname, error);  // a program is named as it was called
  if (error) at = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (int up = 0; up < 4 && at.has_relative_path(); ++up) {
    at = at.parent_path();
    if (fs::path folder = at / "share/tamaki/clusters"; fs::is_directory(folder, error)) return folder;
  }
  return {};
}

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  const Result<const Options*> set = options();
  const std::string own = set ? (*set)->clusters : std::string();
  for (std::size_t begin = 0; begin < own.size();) {
    const std::size_t end = std::min(own.find(':', begin), own.size());
    if (end > begin) found.emplace_back(own.substr(begin, end - begin));
    begin = end + 1;
  }
  if (fs::path installed = installed_folder(); !installed.empty()) found.push_back(std::move(installed));
  return found;
}

/// Names become file names, so they are words and nothing else.
bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
}

}  // namespace

Result<std::string> read_description_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return fail(Code::system, fmt::format("{}: is a folder", path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return fail(Code::system, fmt::format("{}: {}", path, std::strerror(errno != 0 ? errno : EIO)));
  std::string text;
  char block[65536];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMostDescriptionBytes)
      return fail(Code::invalid_argument,
                  fmt::format("{}: longer than {} bytes", path, kMostDescriptionBytes));
  }
  if (file.bad()) return fail(Code::system, fmt::format("{}: cannot be read to its end", path));
  return text;
}

Result<std::optional<FoundDescription>> find_description(std::string_view name) {
  if (!is_name(name)) return std::optional<FoundDescription>();
  for (const fs::path& folder : folders()) {
    const fs::path path = folder / (std::string(name) + ".json");
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    Result<std::string> text = read_description_file(path.string());
    if (!text) return pass(std::move(text));
    return std::optional(FoundDescription{std::move(*text), path.string()});
  }
  for (const NamedDescription& own : embedded_descriptions())
    if (own.name == name)
      return std::optional(FoundDescription{std::string(own.text), std::string(name) + ".json"});
  return std::optional<FoundDescription>();
}

std::vector<std::string> description_names() {
  std::set<std::string> names;
  for (const NamedDescription& own : embedded_descriptions()) names.emplace(own.name);
  for (const fs::path& folder : folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".json") names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

}  // namespace tamaki
