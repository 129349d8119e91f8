#include "verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "verify/replay.hpp"
#include "verify/values.hpp"

namespace tamaki {
namespace proof {
namespace {

std::string accesses_text(const Flat& flat, const OrderQuestion& q, const Conflict& c) {
  return fmt::format("{} {}{}, and nothing orders it with {}, which {} it",
                     c.second_writes ? "writes" : "reads", flat.describe_cell(c.cell),
                     c.direct ? " (direct mode)" : "", flat.describe(q.before),
                     c.first_writes ? "writes" : "reads");
}

/// Which chunks at least hold data where those of a conflict do: named by one number, tested by holds().
class Filled {
 public:
  Filled(const Program& head, const Conflict& c, bool uneven)
      : head_(head), uneven_(uneven && has_blocks(head.collective)) {
    if (uneven_)
      first_ = std::min(c.first_chunk, c.second_chunk), last_ = std::max(c.first_chunk, c.second_chunk);
    else
      last_ = std::max(size_class(head, c.first_chunk),
                       size_class(head, c.second_chunk));  // vectors and blocks fill from the front
  }
  auto operator<=>(const Filled& o) const {
    return std::pair(first_, last_) <=> std::pair(o.first_, o.last_);
  }
  bool holds(std::int64_t chunk) const {
    if (!uneven_) return size_class(head_, chunk) <= last_;
    const auto covers = [&](std::int64_t c) {
      return chunk <= c && chunk / head_.chunks == c / head_.chunks;
    };
    return covers(first_) || covers(last_);
  }

 private:
  const Program& head_;
  bool uneven_;
  std::int64_t first_ = 0, last_ = 0;
};

void prove_races(const Flat& flat, const Progress& progress, const Replay& replayed,
                 const VerifyOptions& options, std::vector<Finding>* findings) {
  const std::vector<std::int32_t> open = not_obvious(flat, progress, replayed.questions);
  const auto report = [&](const std::vector<std::int32_t>& numbers, const char* when) {
    for (std::int32_t q : numbers) {
      if (findings->size() >= options.limit) return;
      const OrderQuestion& question = replayed.questions[q];
      Finding finding =
          flat.finding(question.after, accesses_text(flat, question, replayed.conflicts[q]) + when);
      if (std::find(findings->begin(), findings->end(), finding) == findings->end())
        findings->push_back(std::move(finding));
    }
  };
  const std::vector<std::int32_t> races = unordered(flat, progress, replayed.questions, open);
  report(races, "");
  if (!options.empty_chunks || !races.empty() || flat.programs[0].collective == Collective::barrier) return;
  std::map<Filled, std::vector<std::int32_t>> groups;
  for (std::int32_t q : open)
    groups[Filled(flat.programs[0], replayed.conflicts[q], options.uneven)].push_back(q);
  for (auto& [filled, questions] : groups) {
    const auto active = [&, &holding = filled](std::int32_t node) {
      const Node& n = flat.nodes[node];
      for (int w = 0; w < n.step->width; ++w)
        if (holding.holds(logical_chunk(flat.program_of(node), n.step->extent.buffer, n.extent_chunk + w)))
          return true;
      return false;
    };
    report(unordered(flat, progress, replayed.questions, questions, active),
           " when other chunks are empty");
  }
}

/// Lanes that share a FIFO must order each other, from slice to slice too.
void prove_sharing(std::span<const Program> programs, const VerifyOptions& options,
                   std::vector<Finding>* findings) {
  Flat flat;
  if (!flatten(programs, {.in_place = options.in_place, .slices = std::max(options.slices, 1)}, &flat,
               findings, options.limit))
    return;
  Progress progress;
  if (!run_to_end(flat, options.slots, 1, &progress, findings, options.limit)) return;
  std::vector<std::int32_t> sent(flat.fifos.size(), -1), received(flat.fifos.size(), -1);
  std::vector<OrderQuestion> questions;
  std::vector<std::int32_t> fifo_of;
  for (std::int32_t node : progress.order) {
    const Node& n = flat.nodes[node];
    for (int k = 0; k < flat.operand_count(node); ++k) {
      const std::int32_t fifo = flat.operands[n.first_operand + k].fifo;
      if (fifo < 0) continue;
      std::int32_t& last = k < n.step->sources ? received[fifo] : sent[fifo];
      if (last >= 0 && flat.nodes[last].lane != n.lane) {
        questions.push_back({last, node});
        fifo_of.push_back(fifo);
      }
      last = node;
    }
  }
  for (std::int32_t q : unordered(flat, progress, questions, not_obvious(flat, progress, questions))) {
    if (findings->size() >= options.limit) return;
    findings->push_back(
        flat.finding(questions[q].after,
                     fmt::format("uses the FIFO {}, and nothing orders it with {}, which uses it too",
                                 flat.describe_fifo(fifo_of[q]), flat.describe(questions[q].before))));
  }
}

/// A barrier: something that each rank does comes before something that each other rank does.
void prove_barrier(const Flat& flat, const Progress& progress, std::vector<Finding>* findings,
                   std::size_t limit) {
  const int ranks = static_cast<int>(flat.programs.size()), words = (ranks + 63) / 64;
  std::vector<std::uint64_t> heard(std::size_t(ranks) * words, 0);
  for (int r = 0; r < ranks; ++r) heard[std::size_t(r) * words + r / 64] |= std::uint64_t{1} << (r % 64);
  propagate(flat, progress, words, [&](std::int32_t node, std::uint64_t* bits) {
    const std::int32_t rank = flat.lane_of(node).rank;
    bits[rank / 64] |= std::uint64_t{1} << (rank % 64);
    for (int w = 0; w < words; ++w) heard[std::size_t(rank) * words + w] |= bits[w];
  });
  for (int r = 0; r < ranks && findings->size() < limit; ++r) {
    std::vector<int> missing;
    for (int other = 0; other < ranks; ++other)
      if ((heard[std::size_t(r) * words + other / 64] >> (other % 64) & 1) == 0) missing.push_back(other);
    if (!missing.empty())
      findings->push_back(
          {r, -1, -1,
           fmt::format("may leave the barrier before ranks {} have entered it", runs_text(missing))});
  }
}

std::string subject_of(std::span<const Program> programs) {
  if (programs.empty()) return "no programs";
  const Program& p = programs[0];
  const bool named = static_cast<int>(p.collective) < kCollectives;
  std::string text = fmt::format("{} {}, {} rank{}", named ? name_of(p.collective) : "unknown collective",
                                 p.algorithm, programs.size(), programs.size() == 1 ? "" : "s");
  if (has_root(p.collective)) text += fmt::format(", root {}", p.root);
  return text;
}

}  // namespace
}  // namespace proof

Report verify(std::span<const Program> programs, const VerifyOptions& options) {
  using namespace tamaki::proof;
  Report report;
  report.subject = subject_of(programs);
  report.proofs = 1;
  if (options.slots < 1 || options.slots > 1024 || options.slices < 1 || options.slices > 1024) {
    report.findings.push_back(
        {.text = fmt::format("{} slots and {} slices are not in 1..1024", options.slots, options.slices)});
    return report;
  }
  Flat flat;
  if (!flatten(programs, {.in_place = options.in_place}, &flat, &report.findings, options.limit))
    return report;
  report.steps = static_cast<std::int64_t>(flat.nodes.size());
  for (const Fifo& f : flat.fifos) report.messages += f.sends;
  Progress progress;
  if (!run_to_end(flat, options.slots, options.slices, &progress, &report.findings, options.limit))
    return report;
  if (flat.shared_fifos) prove_sharing(programs, options, &report.findings);
  if (!report.findings.empty()) return report;  // the order below would not stand for all

  Replay replayed;
  replay(flat, progress, options, &replayed, &report.findings);
  if (report.findings.size() < options.limit)
    prove_races(flat, progress, replayed, options, &report.findings);
  if (programs[0].collective == Collective::barrier)
    prove_barrier(flat, progress, &report.findings, options.limit);
  report.ordered = replayed.ordered;
  report.canonical = replayed.canonical;
  report.uneven = replayed.uneven;
  report.pairwise_sizes = replayed.pairwise_sizes && replayed.uneven;
  if (options.pairwise_sizes && !report.pairwise_sizes)
    report.findings.push_back({.text = "a message is not sized by an input chunk of its sender and an "
                                       "output chunk of its receiver (pairwise_sizes)"});
  return report;
}

std::string Report::text() const {
  if (ok()) return fmt::format("{}: proved ({} steps, {} messages)", subject, steps, messages);
  std::string text =
      fmt::format("{}: {} finding{}", subject, findings.size(), findings.size() == 1 ? "" : "s");
  for (const Finding& finding : findings) text += "\n  " + text_of(finding);
  return text;
}

}  // namespace tamaki
