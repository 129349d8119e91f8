#pragma once
// The schedules among which simulation and selection look for the best: an algorithm with each combination
// of the wishes (Problem's lanes, pieces, radix) that it answers to.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tamaki {

/// One schedule: an algorithm and its parameters.
struct Candidate {
  const Algorithm* algorithm = nullptr;
  Problem problem = {};
  bool uses_lanes = false, uses_pieces = false, uses_radix = false;
  /// Whether it is the schedule of `other` with the wishes of `p`.
  bool is(const Algorithm* other, const Problem& p) const {
    return algorithm == other && problem.lanes == p.lanes && problem.pieces == p.pieces &&
           problem.radix == p.radix;
  }
  /// "lanes 6, pieces 4": those that it answers to; `slices` where there are several.
  std::string parameters(int slices = 1) const;
};

/// Values to try of each wish.
struct Wishes {
  std::vector<int> lanes = {1};
  std::vector<int> pieces = {1};
  std::vector<int> radices = {2};
  /// Several lanes only where the longest chain has no more messages (ClosedForm::rounds).
  std::optional<std::int64_t> longest_of_lanes = {};
};

/// All combinations of the wishes that the algorithm answers to, on `topology.ranks()` ranks: those on
/// which its closed form depends. Empty where it refuses all of them; `why` then, else "".
std::vector<Candidate> candidates(const Topology& topology, const Algorithm& algorithm, int root,
                                  const Wishes& wishes, std::string* why);

/// What pays on some machine: one lane and as many as a rank has ports, more where several ranks share
/// hosts, some pieces; fewer with very many ranks.
Wishes default_wishes(const Topology& topology);

}  // namespace tamaki
