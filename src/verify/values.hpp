#pragma once
// What the proof knows of the data in a chunk: which logical chunk it is, whose contributions it holds, in
// which order and association they were combined.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tamaki::proof {

/// A set of ranks. Runs of consecutive ranks (round the end too) are numbers, other sets are kept in a
/// SetTable.
using RankSet = std::uint64_t;

class SetTable {
 public:
  explicit SetTable(int ranks) : ranks_(ranks), words_((ranks + 63) / 64) {}
  RankSet single(int rank) const { return std::uint64_t(rank) << 32 | 1u; }
  RankSet all() const { return static_cast<std::uint32_t>(ranks_); }
  /// Union of disjoint sets; false where they are not.
  bool unite(RankSet a, RankSet b, RankSet* both);
  bool contains(RankSet set, int rank) const;
  std::vector<int> members(RankSet set) const;
  /// "0..3, 7".
  std::string text(RankSet set) const;
  std::string missing(RankSet set) const;
  std::string common(RankSet a, RankSet b) const;

  static bool is_run(RankSet set) { return (set & kTable) == 0; }
  static int begin_of(RankSet run) { return static_cast<int>(run >> 32); }
  static int size_of(RankSet run) { return static_cast<int>(run & 0xffffffffu); }

 private:
  static constexpr RankSet kTable = std::uint64_t{1} << 63;
  struct Pair {
    RankSet a, b;
    bool operator==(const Pair&) const = default;
  };
  struct PairHash {
    std::size_t operator()(const Pair& p) const {
      return (p.a * 0x9e3779b97f4a7c15u) ^ (p.b + (p.a >> 29));
    }
  };
  void add_to(RankSet set, std::uint64_t* words) const;
  RankSet intern(const std::vector<std::uint64_t>& words);

  int ranks_, words_;
  std::vector<std::uint64_t> pool_;
  std::unordered_multimap<std::uint64_t, std::uint64_t> by_hash_;  // hash of words -> number
  std::unordered_map<Pair, RankSet, PairHash> unions_;
};

/// "0..3, 7" of ascending numbers.
std::string runs_text(const std::vector<int>& numbers);

struct Value {
  static constexpr std::int64_t kNothing = -1;  // never written
  static constexpr std::int64_t kBroken = -2;   // a finding has been made about it already
  std::int64_t chunk = kNothing;                // logical number
  RankSet ranks = 0;
  std::uint64_t expression = 0;  // equal where the same roundings happen in the same order: equal bits
  bool raw = false;              // the input as the caller gave it, in its place
  bool ordered = false;          // combined in rank order, without gaps
  bool canonical = false;        // made by one step out of single contributions 0..p-1
  bool finished = false;
  bool known() const { return chunk >= 0; }
};

/// Expression of a single contribution, and of sources combined left to right in one step.
std::uint64_t leaf_expression(int rank);
class ExpressionFold {
 public:
  void add(std::uint64_t source);
  std::uint64_t result() const;

 private:
  std::uint64_t value_ = 0;
  int count_ = 0;
};

}  // namespace tamaki::proof
