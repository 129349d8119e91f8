#include "select/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tamaki {
namespace {

bool same(const ClosedForm& a, const ClosedForm& b) {
  return a.rounds == b.rounds && a.chunks_sent == b.chunks_sent && a.chunks_received == b.chunks_received &&
         a.chunks == b.chunks;
}

/// Whether the algorithm answers to a wish: its closed form changes with it.
bool answers(const Topology& topology, const Algorithm& algorithm, const Problem& problem,
             int Problem::*wish) {
  if (algorithm.closed_form == nullptr) return false;
  const ClosedForm before = algorithm.closed_form(topology, problem);
  for (const int other : {problem.*wish + 1, problem.*wish * 2, problem.*wish * 3}) {
    Problem changed = problem;
    changed.*wish = other;
    if (algorithm.refuses != nullptr && !algorithm.refuses(topology, changed).empty()) continue;
    if (!same(before, algorithm.closed_form(topology, changed))) return true;
  }
  return false;
}

}  // namespace

std::string Candidate::parameters(int slices) const {
  std::string text;
  const auto add = [&](bool used, const char* name, int value) {
    if (used) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  add(uses_lanes, "lanes", problem.lanes);
  add(uses_pieces, "pieces", problem.pieces);
  add(uses_radix, "radix", problem.radix);
  add(slices != 1, "slices", slices);
  return text;
}

std::vector<Candidate> candidates(const Topology& topology, const Algorithm& algorithm, int root,
                                  const Wishes& wishes, std::string* why) {
  Candidate plain{.algorithm = &algorithm,
                  .problem = {.collective = algorithm.collective, .ranks = topology.ranks(), .root = root}};
  why->clear();
  if (algorithm.refuses != nullptr) *why = algorithm.refuses(topology, plain.problem);
  if (!why->empty()) return {};
  plain.uses_lanes = answers(topology, algorithm, plain.problem, &Problem::lanes);
  plain.uses_pieces = answers(topology, algorithm, plain.problem, &Problem::pieces);
  plain.uses_radix = answers(topology, algorithm, plain.problem, &Problem::radix);
  bool several_lanes = plain.uses_lanes;
  if (several_lanes && wishes.longest_of_lanes) {
    const std::int64_t rounds = algorithm.closed_form(topology, plain.problem).rounds;
    several_lanes = rounds != ClosedForm::kNotStated && rounds <= *wishes.longest_of_lanes;
  }
  std::vector<Candidate> all;
  for (const int lanes : several_lanes ? wishes.lanes : std::vector{1})
    for (const int pieces : plain.uses_pieces ? wishes.pieces : std::vector{1})
      for (const int radix : plain.uses_radix ? wishes.radices : std::vector{2}) {
        Candidate made = plain;
        made.problem.lanes = lanes;
        made.problem.pieces = pieces;
        made.problem.radix = radix;
        const std::string reason =
            algorithm.refuses != nullptr ? algorithm.refuses(topology, made.problem) : "";
        if (reason.empty())
          all.push_back(made);
        else
          *why = reason;
      }
  if (!all.empty()) why->clear();
  return all;
}

Wishes default_wishes(const Topology& topology) {
  Wishes wishes{.lanes = {1}, .pieces = {1, 8, 32}, .radices = {2, 4, 8}};
  if (topology.ports > 1) wishes.lanes.push_back(topology.ports);
  if (topology.ranks() > 4096) {
    // Only the wishes that pay: streams of long chains, which know no grid, cross the same links and
    // multiply the messages; those of trees share what starting a message takes.
    wishes.longest_of_lanes = 64;
    return wishes;
  }
  wishes.pieces.push_back(128);
  // Streams of algorithms by levels hide each other's way inside the host.
  const auto last = std::max_element(topology.host_of_rank.begin(), topology.host_of_rank.end());
  if (last != topology.host_of_rank.end() && *last > 0 && *last + 1 < topology.ranks())
    for (const int lanes : {8, 32})
      if (lanes > topology.ports) wishes.lanes.push_back(lanes);
  return wishes;
}

}  // namespace tamaki
