#include "problem_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "arguments.hpp"
#include "base/memory_limits.hpp"
#include "command.hpp"
#include "schedule/check.hpp"
#include "schedule/json.hpp"
#include "schedule/msccl.hpp"

namespace tamaki::tools {

Result<std::vector<int>> parse_numbers(const std::string& text, const char* what) {
  std::vector<int> numbers;
  for (const std::string& part : split_list(text)) {
    int low = 0, high = 0;
    const char* end = part.data() + part.size();
    auto r = std::from_chars(part.data(), end, low);
    high = low;
    if (r.ec == std::errc{} &&
        std::string_view(r.ptr, static_cast<std::size_t>(end - r.ptr)).substr(0, 2) == "..")
      r = std::from_chars(r.ptr + 2, end, high);
    if (r.ec != std::errc{} || r.ptr != end || low < 1 || high < low || high > kMostDescribed)
      return fail(Code::invalid_argument,
                  fmt::format("{}: \"{}\" is not a number or range like 8 or 1..64 in 1..{}", what, part,
                              kMostDescribed));
    for (int n = low; n <= high; ++n) numbers.push_back(n);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.empty())
    return fail(Code::invalid_argument, fmt::format("{}: \"{}\" has no number", what, text));
  return numbers;
}

Result<std::vector<const Algorithm*>> find_algorithms(const std::string& collectives,
                                                      const std::string& names) {
  std::vector<Collective> wanted;
  for (const std::string& name : split_list(collectives)) {
    const auto collective = parse_collective(name);
    if (!collective || static_cast<int>(*collective) >= kCollectives) {
      std::vector<std::string> known;
      for (int i = 0; i < kCollectives; ++i) known.emplace_back(name_of(static_cast<Collective>(i)));
      return fail(Code::invalid_argument, unknown_name("collective", name, known));
    }
    wanted.push_back(*collective);
  }
  std::vector<const Algorithm*> found;
  std::vector<std::string> asked = split_list(names);
  for (const Algorithm* algorithm : all_algorithms()) {
    const bool collective =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), algorithm->collective) != wanted.end();
    const bool name =
        asked.empty() || std::find(asked.begin(), asked.end(), algorithm->name) != asked.end();
    if (collective && name) found.push_back(algorithm);
  }
  for (const std::string& name : asked) {
    if (std::any_of(found.begin(), found.end(), [&](const Algorithm* a) { return a->name == name; }))
      continue;
    std::string known;
    for (int i = 0; i < kCollectives; ++i) {
      const auto collective = static_cast<Collective>(i);
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), collective) != wanted.end())
        known += fmt::format("\n  {}: {}", name_of(collective), algorithm_names(collective));
    }
    return fail(Code::invalid_argument, fmt::format("unknown algorithm \"{}\"; there are{}", name, known));
  }
  return found;
}

bool has_root(Collective c) {
  return c == Collective::reduce || c == Collective::broadcast || c == Collective::gather ||
         c == Collective::scatter;
}

Result<std::vector<Program>> build_schedule(const Algorithm& algorithm, const Problem& problem) {
  return build_schedule(algorithm, problem, Topology::flat(std::max(problem.ranks, 0)));
}

Result<std::vector<Program>> build_schedule(const Algorithm& algorithm, const Problem& problem,
                                            const Topology& topology) {
  if (problem.root < 0 || problem.root >= problem.ranks)
    return fail(Code::invalid_argument, fmt::format("--root {} is not in 0..{} (-n {})", problem.root,
                                                    problem.ranks - 1, problem.ranks));
  if (const std::string why = algorithm.refuses(topology, problem); !why.empty())
    return fail(Code::invalid_argument,
                fmt::format("{} {} cannot serve {} ranks: {}", name_of(algorithm.collective),
                            algorithm.name, problem.ranks, why));
  std::vector<Program> programs;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    programs.push_back(algorithm.build(topology, problem, rank));
    if (rank > 0) continue;
    const Program& first = programs.front();  // the others are about as large
    const std::uint64_t bytes =
        sizeof(Program) + first.steps.size() * sizeof(Step) + first.operands.size() * sizeof(Operand);
    if (Status room = check_memory(bytes * static_cast<std::uint64_t>(problem.ranks),
                                   fmt::format("the schedule of {} ranks", problem.ranks));
        !room)
      return pass(std::move(room));
  }
  return programs;
}

}  // namespace tamaki::tools
