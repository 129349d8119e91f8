#include "schedule/file.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "schedule/check.hpp"
#include "schedule/json.hpp"
#include "schedule/msccl.hpp"

namespace tamaki {

Result<std::vector<Program>> read_schedule(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "r");
  if (file == nullptr) return fail_errno("reading " + path);
  std::string text;
  char bytes[65536];
  for (std::size_t n; (n = std::fread(bytes, 1, sizeof bytes, file)) > 0;) text.append(bytes, n);
  const bool failed = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (failed) return fail_errno("reading " + path);
  const bool xml = text.find_first_not_of(" \t\r\n") != std::string::npos &&
                   text[text.find_first_not_of(" \t\r\n")] == '<';
  Result<std::vector<Program>> programs = xml ? schedule_from_msccl(text, path) : schedule_from_json(text);
  if (!programs && xml) return pass(std::move(programs));
  if (!programs) {
    // One program alone is a schedule to look at, too.
    Result<Program> one = program_from_json(text);
    if (!one) return fail(Code::invalid_argument, path + ": " + programs.error().message);
    programs = std::vector<Program>{std::move(*one)};
  }
  for (const Program& program : *programs)
    if (const auto findings = check(program, 1); !findings.empty())
      return fail(Code::invalid_argument, fmt::format("{}: {}", path, text_of(findings[0])));
  return programs;
}

}  // namespace tamaki
