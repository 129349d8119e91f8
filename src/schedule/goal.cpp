#include "schedule/goal.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "schedule/logical.hpp"

namespace tamaki {
namespace {

/// Bytes of a step's chunks: `whole` bytes cut evenly into `parts`, the first ones larger by one.
std::uint64_t bytes_of(const Program& p, const ExpandedStep& step, std::uint64_t bytes) {
  if (p.collective == Collective::barrier) return static_cast<std::uint64_t>(step.step->width);
  const auto parts = static_cast<std::uint64_t>(p.chunks);
  const std::uint64_t whole =
      has_blocks(p.collective) ? bytes / static_cast<std::uint64_t>(p.ranks) : bytes;
  std::uint64_t sum = 0;
  for (int w = 0; w < step.step->width; ++w) {
    const std::int64_t chunk = logical_chunk(p, step.extent.buffer, step.extent.chunk + w);
    sum += whole / parts + (static_cast<std::uint64_t>(size_class(p, chunk)) < whole % parts);
  }
  return sum;
}

class RankWriter {
 public:
  RankWriter(const Program& program, const GoalOptions& options) : p_(program), options_(options) {}

  std::string text() {
    std::vector<std::vector<std::vector<int>>> ends(p_.lanes.size());  // [lane][step]: labels that end it
    std::vector<LaneCursor> cursors;
    for (std::size_t l = 0; l < p_.lanes.size(); ++l)
      cursors.emplace_back(p_, static_cast<std::int32_t>(l));
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t l = 0; l < cursors.size(); ++l)
        while (!cursors[l].done()) {
          const ExpandedStep& step = cursors[l].current();
          std::vector<int> after;
          if (!ends[l].empty()) after = ends[l].back();
          bool ready = true;
          for (int d = 0; d < step.step->dependencies && ready; ++d) {
            const Dependency& need = p_.dependencies[step.step->first_dependency + d];
            ready = static_cast<int>(ends[need.lane].size()) > need.step;
            if (ready)
              after.insert(after.end(), ends[need.lane][need.step].begin(),
                           ends[need.lane][need.step].end());
          }
          if (!ready) break;
          ends[l].push_back(write(step, after));
          cursors[l].advance();
          moved = true;
        }
    }
    return std::move(text_);
  }
  std::int64_t lines() const { return lines_; }

 private:
  int op(const std::string& what, const std::vector<int>& after) {
    const int label = ++label_;
    text_ += fmt::format("l{}: {}\n", label, what);
    for (int other : after) text_ += fmt::format("l{} requires l{}\n", label, other);
    lines_ += 1 + static_cast<std::int64_t>(after.size());
    return label;
  }

  /// Labels of the ops that the step is over with.
  std::vector<int> write(const ExpandedStep& step, const std::vector<int>& after) {
    const Step& s = *step.step;
    const std::uint64_t bytes = bytes_of(p_, step, options_.bytes);
    if (bytes == 0) return after;  // empty chunks move nothing
    std::vector<int> have;
    bool locally = s.sources > 1;
    for (int k = 0; k < s.sources; ++k)
      if (const Operand& o = step.sources[k]; o.kind == Operand::Kind::peer)
        have.push_back(op(fmt::format("recv {}b from {} tag {}", bytes, o.peer, o.channel), after));
    for (int d = 0; d < s.destinations; ++d)
      locally = locally || step.destinations[d].kind == Operand::Kind::local;
    if (have.empty()) have = after;
    if (locally && options_.ns_per_byte > 0)
      have = {op(fmt::format("calc {}",
                             std::llround(std::ceil(static_cast<double>(bytes) * options_.ns_per_byte))),
                 have)};
    std::vector<int> ends;
    for (int d = 0; d < s.destinations; ++d)
      if (const Operand& o = step.destinations[d]; o.kind == Operand::Kind::peer)
        ends.push_back(op(fmt::format("send {}b to {} tag {}", bytes, o.peer, o.channel), have));
    return ends.empty() ? have : ends;
  }

  const Program& p_;
  const GoalOptions& options_;
  std::string text_;
  int label_ = 0;
  std::int64_t lines_ = 0;
};

}  // namespace

Result<std::string> schedule_to_goal(std::span<const Program> programs, const GoalOptions& options) {
  constexpr std::int64_t kMostLines = std::int64_t{1} << 26;
  std::string text = fmt::format("num_ranks {}\n", programs.size());
  std::int64_t lines = 1;
  for (const Program& program : programs) {
    RankWriter writer(program, options);
    text += fmt::format("\nrank {} {{\n{}}}\n", program.rank, writer.text());
    lines += writer.lines();
    if (lines > kMostLines)
      return fail(Code::invalid_argument,
                  fmt::format("the schedule has more than {} lines by rank {} of {}", kMostLines,
                              program.rank, programs.size()));
  }
  return text;
}

}  // namespace tamaki
