// What can be checked of the documents: docs/options.md says what options.def says, and paths that are
// named exist. UPDATE_GOLDEN=1 writes the file instead of comparing it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/options.hpp"

namespace tamaki {
namespace {

/// A table cell: bars would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string document() {
  std::string text =
      "# Options\n"
      "\n"
      "Every setting of the library is an environment variable. `tamaki info --options` shows the values "
      "in force and\n"
      "where each came from. A variable that is set but wrong is an error naming variable, text and range; "
      "an unknown\n"
      "`TAMAKI_*` warns once. `tmkConfig_t` (C) and `tmk::Config` (C++) set some of them for one "
      "communicator.\n"
      "All ranks of a job need equal values, except of rank, log and file names. Sizes take the suffixes "
      "K, M, G, T.\n"
      "\n"
      "This file is made of `src/base/options.def`; a test compares the two (`UPDATE_GOLDEN=1` rewrites "
      "it).\n"
      "\n"
      "| variable | default | range | meaning |\n"
      "|---|---|---|---|\n";
  for (const OptionFact& fact : option_facts())
    text += "| `" + std::string(fact.name) + "` | " + cell(fact.initial) + " | " + cell(fact.range) +
            " | " + cell(fact.help) + " |\n";
  return text;
}

TEST(OptionsDocument, saysWhatTheTableSays) {
  const std::string path = std::string(TAMAKI_SOURCE_DIR) + "/docs/options.md";
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << document();
    GTEST_SKIP() << "wrote " << path;
  }
  std::stringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), document()) << "run with UPDATE_GOLDEN=1 to rewrite " << path;
}

std::string read(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Documents, nameFilesThatExist) {
  const std::filesystem::path root = TAMAKI_SOURCE_DIR;
  std::vector<std::filesystem::path> documents = {root / "README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  const std::regex quoted("`([a-z_0-9]+/[A-Za-z_0-9./]*[a-z])`"), linked("\\]\\(([^)#:]+)\\)");
  int checked = 0;
  for (const auto& document : documents) {
    const std::string text = read(document);
    for (std::sregex_iterator i(text.begin(), text.end(), quoted), end; i != end; ++i) {
      const std::string path = (*i)[1];
      if (path.starts_with("out/") || path.starts_with("build/") || path.starts_with("lib/"))
        continue;  // made by a run
      EXPECT_TRUE(std::filesystem::exists(root / path)) << document << " names " << path;
      ++checked;
    }
    for (std::sregex_iterator i(text.begin(), text.end(), linked), end; i != end; ++i) {
      const std::string path = (*i)[1];
      EXPECT_TRUE(std::filesystem::exists(document.parent_path() / path)) << document << " links " << path;
      ++checked;
    }
  }
  EXPECT_GT(checked, 20);
}

}  // namespace
}  // namespace tamaki
