#pragma once
// What the algorithms cost on one machine, for ranks at given places: simulated, and corrected by what was
// measured.
//
// Of each candidate there is a curve: seconds over message sizes, linear in bytes between the sizes of a
// grid (between two of which start-up costs and bandwidths, and so the model's times, are very nearly
// that). A choice is then a lookup: evaluate the curves of a collective at n and take the least.
//
// All ranks come to the same choice without talking, since everything here is a function of machine, places
// and tuning table, which are equal on all of them, in integers and in doubles under + - * / alone, whose
// results IEEE 754 fixes.

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "select/candidates.hpp"
#include "simulate/network.hpp"
#include "topology/placement/placement.hpp"

namespace tamaki {

/// A candidate's time over sizes.
struct Curve {
  Candidate candidate = {};
  struct Point {
    double bytes = 0;  // n as in SizeRule; ascending
    double seconds = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points = {};  // empty: not known
  std::string why_not = {};        // then: why

  /// Seconds at `bytes`: linear between points, along the last two beyond them, the first below. 0: no
  /// points.
  double at(double bytes) const;
  bool covers(double bytes) const {
    return !points.empty() && bytes >= points.front().bytes && bytes <= points.back().bytes;
  }
};

/// One candidate at one size.
struct Estimate {
  enum class Origin : std::uint8_t {
    measured,   // from a tuning table
    corrected,  // simulated, times what those that were measured took of what they were simulated to take
    simulated,
  };
  Candidate candidate = {};
  double seconds = 0;
  Origin origin = Origin::simulated;
};
std::string_view name_of(Estimate::Origin origin);

/// Bytes of a slot. They get smaller as ranks get more: the rings of a host stay within some 100 MiB even
/// if every pair talks.
std::size_t default_slot_bytes(std::int32_t most_ranks_on_a_host);

struct CostOptions {
  std::size_t slot_bytes = std::size_t{128} << 10;  // longer chunks move in slices of so much
  /// Candidates with more messages than that (of all ranks together, counted without slices) are not
  /// simulated.
  std::int64_t most_messages = 500'000;
  /// Times within this factor of the least are as good as it: what the model can tell apart. Where the
  /// machine's rates are guesses (kGuessedAlike) less than where they are described.
  double alike = 1.05;
  static constexpr double kGuessedAlike = 1.25;
  /// Of more ranks than that only the algorithms `shortlist` names are simulated, of more than most_ranks
  /// none.
  std::int32_t all_up_to_ranks = 64;
  std::int32_t most_ranks = 4'096;
};

class Costs {
 public:
  /// `placement` is one of ranks on hosts of `machine`, `topology` what recognize() makes of both.
  Costs(Machine machine, Placement placement, Topology topology, CostOptions options = {});

  /// Digest of machine, places and slot: what a tuning table's rows are for.
  std::uint64_t key() const { return key_; }
  static std::uint64_t key_of(std::uint64_t machine_hash, const Placement& placement,
                              std::size_t slot_bytes);
  const Machine& machine() const { return machine_; }
  const Topology& topology() const { return topology_; }
  double alike() const { return options_.alike; }

  /// Replaces what was, or would be, simulated of `collective`: nothing more is.
  void set_simulated(Collective collective, std::vector<Curve> curves);
  /// Replaces what was measured.
  void set_measured(Collective collective, std::vector<Curve> curves);
  bool has_measured(Collective collective);

  /// Cheapest first; of equals those with fewer parameters. Empty where nothing is known. Simulates what it
  /// needs when it first needs it: the sizes of the grid next to `bytes`, which takes from a millisecond
  /// for a few ranks to a second for hundreds. Any thread. `shortlist`: see CostOptions.
  std::vector<Estimate> estimates(Collective collective, double bytes,
                                  const std::vector<std::string_view>& shortlist = {});
  /// Candidates without a time, and why; to be called after estimates().
  std::vector<Curve> unknown(Collective collective);

 private:
  struct Known {
    bool listed = false;          // simulated has all candidates
    std::vector<double> missing;  // sizes of the grid that are not simulated
    std::vector<Curve> simulated, measured;
  };
  void list_candidates(Collective collective, const std::vector<std::string_view>& shortlist,
                       Known* known) const;
  void simulate_at(const std::vector<double>& sizes, Known* known) const;

  Machine machine_;
  Placement placement_;
  Topology topology_;
  CostOptions options_;
  std::uint64_t key_ = 0;
  std::mutex mutex_;  // guards known_
  std::array<Known, kCollectives> known_;
};

/// Slices in which the executor moves a program's chunks of a message of `bytes`; at most as many as fill a
/// pipeline.
int slices_of(const Program& program, double bytes, std::size_t slot_bytes);

/// The grid of sizes of the curves, ascending. Beyond its last, times are linear.
std::vector<double> curve_sizes(Collective collective);

/// The sizes of the grid that a time at `bytes` is interpolated from.
std::vector<double> sizes_beside(Collective collective, double bytes);

/// What is tried for a choice: default_wishes() without what takes much memory for slots, and fewer pieces
/// with few ranks, whose pipelines are short.
Wishes choice_wishes(const Topology& topology);

/// Adds points of the curve's candidate at `sizes`, by simulation, up to the first that fails. Where there
/// are none then, `why_not` says why.
void simulate_curve(const Network& network, const Topology& topology, const std::vector<double>& sizes,
                    const CostOptions& options, Curve* curve);

}  // namespace tamaki
