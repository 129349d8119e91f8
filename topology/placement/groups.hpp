#pragma once
// The communicators of training in three dimensions - tensor (TP), pipeline (PP) and data parallel (DP) -
// on a machine.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "topology/placement/placement.hpp"

namespace tamaki {

/// TP x PP x DP ranks.
struct ParallelSizes {
  std::int32_t tp = 1, pp = 1, dp = 1;
  std::int64_t ranks() const { return static_cast<std::int64_t>(tp) * pp * dp; }
  bool operator==(const ParallelSizes&) const = default;
};

/// Which ranks form each group: every rank is in one group of each kind, members in the order of their
/// index in it.
struct ParallelGroups {
  std::vector<std::vector<std::int32_t>> tp, pp, dp;
};

/// `order`: the three from fastest to slowest in the rank, separated by '-': "tp-dp-pp" is Megatron's and
/// that of the Fugaku-LLM run (its placement file is named tp6dp288pp8). Errors: a size below 1, an order
/// that is none, more ranks than kMostPlacedRanks.
Result<ParallelGroups> parallel_groups(const ParallelSizes& sizes, std::string_view order = "tp-dp-pp");

/// How the dimensions of a torus are cut among the three: dimension d has size tp[d] x dp[d] x pp[d],
/// tensor parallel ranks next to each other, then data parallel, then pipeline.
struct ParallelBlocks {
  std::vector<std::int32_t> tp, dp, pp;
  bool operator==(const ParallelBlocks&) const = default;
};

/// Every way to cut the machine's dimensions so that sizes.tp, .dp and .pp come out; empty where there is
/// none. One rank a host. Errors: the machine is no torus; it has not sizes.ranks() hosts.
Result<std::vector<ParallelBlocks>> parallel_blocks(const Machine& machine, const ParallelSizes& sizes);

/// Places rank = its number under `order` at the host that the blocks say.
Result<Placement> place_in_blocks(const Machine& machine, const ParallelSizes& sizes,
                                  const ParallelBlocks& blocks, std::string_view order = "tp-dp-pp");

/// "TP 6x1x1 of 48x6x48, ..." - the cut as text.
std::string blocks_text(const ParallelBlocks& blocks);

/// A line for each kind of group: their number and size, and where they lie (recognize()): "DP: 48 groups
/// of 288: 48x6 torus". Where groups of a kind lie differently, the kinds of places with their numbers.
Result<std::string> describe_groups(const Machine& machine, const Placement& placement,
                                    const ParallelGroups& groups);

}  // namespace tamaki
