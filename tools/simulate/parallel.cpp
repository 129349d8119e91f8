#include "simulate/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "schedule/builder.hpp"
#include "topology/recognize.hpp"

namespace tamaki::tools {
namespace {

constexpr const char* kGivenOrder = "ranks in the order given";

const char* name_of_kind(ParallelOptions::Kind kind) {
  static constexpr const char* kNames[] = {"TP", "PP", "DP"};
  return kNames[static_cast<int>(kind)];
}

Program build_send(const Topology&, const Problem& problem, int rank) {
  // A broadcast's sizes: n is the vector, and a chunk a lane.
  Builder b({.algorithm = "send",
             .collective = Collective::broadcast,
             .ranks = problem.ranks,
             .rank = rank,
             .chunks = problem.lanes});
  // Sending lanes first: what is sent does not wait for what comes.
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane(l);
    if (rank + 1 < problem.ranks) lane.send(in(l), to(rank + 1));
  }
  for (int l = 0; l < problem.lanes; ++l) {
    auto lane = b.lane(l);
    if (rank > 0) lane.recv(from(rank - 1), out(l));
  }
  return b.take();
}

ClosedForm closed_form_of_send(const Topology&, const Problem& problem) {
  return {
      .rounds = 1, .chunks_sent = problem.lanes, .chunks_received = problem.lanes, .chunks = problem.lanes};
}

/// The options of one placement: its groups, and what is recognized of each.
Result<SweepOptions> on_placement(const SweepOptions& base, const ParallelOptions& parallel,
                                  Placement placement, std::string* where) {
  SweepOptions options = base;
  options.placement = std::move(placement);
  const Result<ParallelGroups> groups = parallel_groups(parallel.sizes, parallel.order);
  if (!groups) return tl::unexpected<Error>(groups.error());
  options.groups = parallel.kind == ParallelOptions::Kind::tp   ? groups->tp
                   : parallel.kind == ParallelOptions::Kind::pp ? groups->pp
                                                                : groups->dp;
  std::map<std::string, int> kinds;
  for (const std::vector<std::int32_t>& group : options.groups) {
    Recognized found = recognize(options.machine, restrict_to(options.placement, group));
    options.topologies.push_back(std::move(found.topology));
    ++kinds[found.what];
  }
  options.topology = options.topologies.front();
  *where = fmt::format("{} groups of {}", options.groups.size(), options.ranks());
  for (const auto& [what, count] : kinds)
    *where += kinds.size() == 1 ? ": " + what : fmt::format("; {} of them: {}", count, what);
  options.structure = *where;
  return options;
}

double seconds_of(const ParallelRow& row) {
  const int best = row.sweep.best(row.options.sizes.size() - 1);
  if (best < 0) return std::numeric_limits<double>::infinity();
  return row.sweep.rows[static_cast<std::size_t>(best)].cells.back().simulation.seconds;
}

}  // namespace

extern const Algorithm k_stage_send;
const Algorithm k_stage_send = {.name = "send",
                                .collective = Collective::broadcast,
                                .source = "folklore",
                                .cost = "alpha + n beta",
                                .build = build_send,
                                .closed_form = closed_form_of_send};

Result<ParallelSizes> parse_parallel(const std::string& text) {
  ParallelSizes sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int32_t* size : {&sizes.tp, &sizes.pp, &sizes.dp}) {
    const auto read = std::from_chars(at, end, *size);
    const bool last = size == &sizes.dp;
    if (read.ec != std::errc() || *size < 1 ||
        (last ? read.ptr != end : read.ptr == end || *read.ptr != 'x'))
      return fail(Code::invalid_argument,
                  fmt::format("--parallel \"{}\": it takes TPxPPxDP, as 6x8x288", text));
    at = last ? read.ptr : read.ptr + 1;
  }
  return sizes;
}

Result<std::vector<ParallelRow>> run_parallel(
    const SweepOptions& base, const ParallelOptions& parallel,
    const std::function<void(const std::string&, int, int)>& progress) {
  if (parallel.sizes.ranks() != base.placement.size())
    return fail(Code::invalid_argument, fmt::format("--parallel {}x{}x{} are {} ranks; {} are placed",
                                                    parallel.sizes.tp, parallel.sizes.pp, parallel.sizes.dp,
                                                    parallel.sizes.ranks(), base.placement.size()));
  std::vector<std::pair<std::string, Placement>> placements = {{kGivenOrder, base.placement}};
  if (parallel.places != ParallelOptions::Places::given) {
    const Result<std::vector<ParallelBlocks>> cuts = parallel_blocks(base.machine, parallel.sizes);
    if (!cuts) return tl::unexpected<Error>(cuts.error());
    for (const ParallelBlocks& blocks : *cuts) {
      Result<Placement> placement = place_in_blocks(base.machine, parallel.sizes, blocks, parallel.order);
      if (!placement) return tl::unexpected<Error>(placement.error());
      placements.emplace_back(blocks_text(blocks), std::move(*placement));
    }
  }
  std::vector<ParallelRow> rows;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    ParallelRow row{.placement = placements[i].first};
    Result<SweepOptions> options =
        on_placement(base, parallel, std::move(placements[i].second), &row.where);
    if (!options) return tl::unexpected<Error>(options.error());
    row.options = std::move(*options);
    Result<Sweep> sweep = run_sweep(row.options, [&](const std::string& now, int, int) {
      progress(row.placement + ", " + now, static_cast<int>(i), static_cast<int>(placements.size()));
    });
    if (!sweep) return tl::unexpected<Error>(sweep.error());
    row.sweep = std::move(*sweep);
    if (i == 0 || seconds_of(row) < std::numeric_limits<double>::infinity()) rows.push_back(std::move(row));
    // Of those that are not asked for only the best is kept.
    if (parallel.places == ParallelOptions::Places::best && rows.size() == 3)
      rows.erase(rows.begin() + (seconds_of(rows[2]) < seconds_of(rows[1]) ? 1 : 2));
  }
  std::stable_sort(rows.begin() + 1, rows.end(), [](const ParallelRow& a, const ParallelRow& b) {
    return seconds_of(a) < seconds_of(b);
  });
  return rows;
}

std::string parallel_table(const ParallelOptions& parallel, const std::vector<ParallelRow>& rows) {
  std::string text;
  for (const ParallelRow& row : rows)
    text += fmt::format("{}{} groups, all at once; {}\n{}", &row == rows.data() ? "" : "\n",
                        name_of_kind(parallel.kind), row.placement, sweep_table(row.options, row.sweep));
  return text;
}

std::string parallel_json(const ParallelOptions& parallel, const std::vector<ParallelRow>& rows) {
  nlohmann::ordered_json document;
  document["cluster"] = rows.front().options.machine.name;
  document["parallel"] = {{"tp", parallel.sizes.tp}, {"pp", parallel.sizes.pp}, {"dp", parallel.sizes.dp}};
  document["groups"] = name_of_kind(parallel.kind);
  document["placements"] = nlohmann::ordered_json::array();
  for (const ParallelRow& row : rows) {
    nlohmann::ordered_json made = nlohmann::ordered_json::parse(sweep_json(row.options, row.sweep));
    made["placement"] = row.placement;
    made["where"] = row.where;
    document["placements"].push_back(std::move(made));
  }
  return document.dump(1) + "\n";
}

}  // namespace tamaki::tools
