#pragma once
// The accesses of every cell, as the replay comes across them.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "verify/replay.hpp"

namespace tamaki::proof {

/// Who has read and written a cell since when it matters, and which direct accesses of it are under way.
///
/// An access that a later write of the cell comes after needs no comparison with what follows that write:
/// order is transitive. With empty chunks that holds only for accesses of the same logical chunk, as a step
/// on an empty chunk is skipped; `options.empty_chunks` keeps the others too.
class AccessLog {
 public:
  AccessLog(const Flat& flat, const VerifyOptions& options, Replay* result, std::vector<Finding>* findings)
      : flat_(flat),
        direct_(options.direct),
        exact_(options.empty_chunks),
        limit_(options.limit),
        result_(*result),
        findings_(*findings),
        writers_(flat.cell_count, -1),
        readers_(flat.cell_count, -1) {
    if (!direct_) return;
    late_count_.assign(flat.cell_count, 0);
    late_sender_.assign(flat.cell_count, -1);
    early_.assign(flat.cell_count, -1);
    for (const Fifo& f : flat.fifos)
      if (f.receives > 0) heard_.insert(pair(f.destination, f.source));
  }

  /// `chunk`: logical number of the data.
  void read(std::int32_t node, std::int32_t cell, std::int64_t chunk) {
    if (direct_ && early_[cell] >= 0) early_conflict(node, cell, "reads");
    for (std::int32_t i = writers_[cell]; i >= 0; i = pool_[i].next)
      ask(pool_[i], node, chunk, {cell, true, false, false});
    add_reader(node, cell, chunk);
  }
  void write(std::int32_t node, std::int32_t cell, std::int64_t chunk) {
    check_write(node, cell, chunk, false);
    drop(readers_[cell], chunk);
    drop(writers_[cell], chunk);
    add(writers_[cell], node, chunk);
  }

  /// A message whose data may stay in `cell` until `receives` says so.
  void late_read_begins(std::int32_t sender, std::int32_t cell) {
    ++late_count_[cell];
    late_sender_[cell] = sender;
  }
  void late_read_ends(std::int32_t receiver, std::int32_t cell, std::int64_t chunk) {
    --late_count_[cell];
    add_reader(receiver, cell, chunk);
  }
  /// A message that may be written to `cell` by `sender` now, at the latest when it is received. With
  /// slices, a sender that hears from the receiver at all may have heard from it when it sends.
  bool may_write_early(std::int32_t sender_rank, std::int32_t receiver_rank) const {
    return heard_.count(pair(sender_rank, receiver_rank)) > 0;
  }
  void early_write_begins(std::int32_t sender, std::int32_t cell, std::int64_t chunk) {
    check_write(sender, cell, chunk, true);
    early_[cell] = sender;
  }
  void early_write_ends(std::int32_t sender, std::int32_t cell) {
    if (early_[cell] == sender) early_[cell] = -1;
  }

 private:
  static constexpr std::size_t kMaxQuestions = std::size_t{1} << 25;
  struct Access {
    std::int32_t node, next;
    std::int64_t chunk;
  };
  static std::uint64_t pair(std::int32_t a, std::int32_t b) {
    return std::uint64_t(a) << 32 | static_cast<std::uint32_t>(b);
  }

  void check_write(std::int32_t node, std::int32_t cell, std::int64_t chunk, bool direct) {
    if (direct_ && late_count_[cell] > 0)
      say(node, fmt::format("writes {} while the message of {} may still be read from there (direct mode)",
                            flat_.describe_cell(cell), flat_.describe(late_sender_[cell])));
    if (direct_ && early_[cell] >= 0) early_conflict(node, cell, "writes");
    for (std::int32_t i = writers_[cell]; i >= 0; i = pool_[i].next)
      ask(pool_[i], node, chunk, {cell, true, true, direct});
    for (std::int32_t i = readers_[cell]; i >= 0; i = pool_[i].next)
      ask(pool_[i], node, chunk, {cell, false, true, direct});
  }
  void early_conflict(std::int32_t node, std::int32_t cell, const char* does) {
    say(node, fmt::format("{} {} while the message of {} may be written there at any time (direct mode)",
                          does, flat_.describe_cell(cell), flat_.describe(early_[cell])));
  }
  void add_reader(std::int32_t node, std::int32_t cell, std::int64_t chunk) {
    // A later read of the same lane and chunk stands for the earlier one.
    for (std::int32_t i = readers_[cell], seen = 0; i >= 0 && seen < 4; i = pool_[i].next, ++seen)
      if (pool_[i].chunk == chunk && flat_.nodes[pool_[i].node].lane == flat_.nodes[node].lane) {
        pool_[i].node = node;
        return;
      }
    add(readers_[cell], node, chunk);
  }
  void add(std::int32_t& list, std::int32_t node, std::int64_t chunk) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::int32_t>(pool_.size()));
      pool_.push_back({});
    }
    const std::int32_t place = free_.back();
    free_.pop_back();
    pool_[place] = {node, list, chunk};
    list = place;
  }
  void drop(std::int32_t& list, std::int64_t chunk) {
    std::int32_t kept = -1;
    for (std::int32_t i = list; i >= 0;) {
      const std::int32_t next = pool_[i].next;
      if (exact_ && pool_[i].chunk != chunk)
        pool_[i].next = kept, kept = i;
      else
        free_.push_back(i);
      i = next;
    }
    list = kept;
  }
  void ask(const Access& before, std::int32_t after, std::int64_t chunk, Conflict conflict) {
    if (flat_.nodes[before.node].lane == flat_.nodes[after].lane) return;
    if (result_.questions.size() >= kMaxQuestions)
      return say(after, "too many pairs of accesses to prove their order");
    conflict.first_chunk = before.chunk;
    conflict.second_chunk = chunk;
    result_.questions.push_back({before.node, after});
    result_.conflicts.push_back(conflict);
  }
  void say(std::int32_t node, std::string text) {
    if (findings_.size() < limit_) findings_.push_back(flat_.finding(node, std::move(text)));
  }

  const Flat& flat_;
  const bool direct_, exact_;
  const std::size_t limit_;
  Replay& result_;
  std::vector<Finding>& findings_;
  std::vector<std::int32_t> writers_, readers_;  // of each cell: first in its list
  std::vector<std::int32_t> late_count_, late_sender_, early_, free_;
  std::vector<Access> pool_;
  std::unordered_set<std::uint64_t> heard_;
};

}  // namespace tamaki::proof
