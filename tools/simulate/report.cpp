// Table, JSON and timeline of a sweep.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/types.hpp"
#include "simulate/sweep.hpp"

namespace tamaki::tools {

std::string short_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  int unit = 0;
  while (unit < 5 && bytes >= 1024) bytes /= 1024, ++unit;
  if (bytes == std::floor(bytes)) return fmt::format("{:.0f}{}", bytes, kUnits[unit]);
  return fmt::format("{:.{}f}{}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, kUnits[unit]);
}

std::string short_time(double seconds) {
  static constexpr std::pair<double, const char*> kUnits[] = {
      {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  for (const auto& [unit, name] : kUnits)
    if (seconds >= unit || unit == 1e-9) {
      const double value = seconds / unit;
      return fmt::format("{:.{}f} {}", value, value < 10 ? 3 : value < 100 ? 2 : 1, name);
    }
  return {};
}

namespace {

constexpr std::size_t kMostShown = 34;  // characters of a link's name in the table

std::string shortened(std::string text) {
  if (text.size() > kMostShown) text = text.substr(0, kMostShown - 3) + "...";
  return text;
}

}  // namespace

std::string sweep_table(const SweepOptions& options, const Sweep& sweep) {
  const Collective collective = options.algorithms.front()->collective;
  const std::int32_t ranks = options.ranks();
  std::string text = fmt::format("{}: {}, {} ranks ({})\n", options.machine.name, name_of(collective),
                                 ranks, options.structure);
  const Result<std::unique_ptr<Network>> network =
      Network::of(options.machine, options.placement, options.network);
  text +=
      fmt::format("{:>7} {:<20} {:<22} {:>9} {:>10} {:>9} {:>9} {:>6}  {}\n", "bytes", "algorithm", "with",
                  "steps", "time", "alg GB/s", "bus GB/s", "bound", "busiest link (time in use)");
  for (std::size_t i = 0; i < options.sizes.size(); ++i) {
    const double bytes = options.sizes[i];
    const int best = sweep.best(i);
    for (std::size_t r = 0; r < sweep.rows.size(); ++r) {
      const SweepRow& row = sweep.rows[r];
      const SweepCell& cell = row.cells[i];
      if (!cell.done) continue;
      const Simulation& s = cell.simulation;
      const std::string link =
          s.busiest_link < 0 || !network
              ? "-"
              : fmt::format("{} ({:.0f} %)", shortened((*network)->link_name(s.busiest_link)),
                            100 * s.busiest_share);
      const std::string bound = sweep.bounds[i] > 0 && s.seconds > 0
                                    ? fmt::format("{:.1f} %", 100 * sweep.bounds[i] / s.seconds)
                                    : "-";
      text += fmt::format("{:>7} {:<20} {:<22} {:>9} {:>10} {:>9.4g} {:>9.4g} {:>6} {}{}\n",
                          short_bytes(bytes), row.algorithm->name, cell.candidate.parameters(cell.slices),
                          s.steps, short_time(s.seconds), algorithm_bandwidth(bytes, s.seconds) / 1e9,
                          bus_bandwidth(collective, ranks, bytes, s.seconds) / 1e9, bound,
                          static_cast<int>(r) == best && sweep.rows.size() > 1 ? "*" : " ", link);
    }
  }
  for (const SweepRow& row : sweep.rows)
    if (!row.refused.empty()) text += fmt::format("{}: {}\n", row.algorithm->name, row.refused);
  for (const Crossing& crossing : crossings(options, sweep))
    text += fmt::format("up to {} {}, above {}\n", short_bytes(crossing.bytes), crossing.below->name,
                        crossing.above->name);
  return text;
}

std::string sweep_json(const SweepOptions& options, const Sweep& sweep) {
  const Collective collective = options.algorithms.front()->collective;
  nlohmann::ordered_json document;
  document["cluster"] = options.machine.name;
  document["collective"] = name_of(collective);
  document["ranks"] = options.ranks();
  if (!options.groups.empty()) document["groups"] = options.groups.size();
  document["structure"] = options.structure;
  document["wall_s"] = sweep.wall_s;
  const Result<std::unique_ptr<Network>> network =
      Network::of(options.machine, options.placement, options.network);
  document["results"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < options.sizes.size(); ++i)
    for (const SweepRow& row : sweep.rows) {
      const SweepCell& cell = row.cells[i];
      if (!cell.done) continue;
      const Simulation& s = cell.simulation;
      nlohmann::ordered_json result;
      result["bytes"] = options.sizes[i];
      result["algorithm"] = row.algorithm->name;
      result["lanes"] = cell.candidate.problem.lanes;
      result["pieces"] = cell.candidate.problem.pieces;
      result["radix"] = cell.candidate.problem.radix;
      result["slices"] = cell.slices;
      result["seconds"] = s.seconds;
      result["algorithm_gbs"] = algorithm_bandwidth(options.sizes[i], s.seconds) / 1e9;
      result["bus_gbs"] =
          bus_bandwidth(collective, options.ranks(), options.sizes[i], s.seconds) / 1e9;
      result["bound_s"] = sweep.bounds[i];
      result["steps"] = s.steps;
      result["messages"] = s.messages;
      result["simulated_messages"] = s.simulated_messages;
      result["simulated_ranks"] = s.simulated_ranks;
      if (s.busiest_link >= 0 && network) {
        result["busiest_link"] = (*network)->link_name(s.busiest_link);
        result["busiest_share"] = s.busiest_share;
      }
      document["results"].push_back(std::move(result));
    }
  document["refused"] = nlohmann::ordered_json::object();
  for (const SweepRow& row : sweep.rows)
    if (!row.refused.empty()) document["refused"][std::string(row.algorithm->name)] = row.refused;
  document["crossings"] = nlohmann::ordered_json::array();
  for (const Crossing& c : crossings(options, sweep))
    document["crossings"].push_back(
        {{"bytes", c.bytes}, {"below", c.below->name}, {"above", c.above->name}});
  return document.dump(1) + "\n";
}

std::string trace_json(const std::vector<SimulatedSpan>& spans) {
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  std::int32_t ranks = 0;
  std::size_t arrow = 0;
  for (const SimulatedSpan& span : spans) {
    ranks = std::max(ranks, std::max(span.rank, span.peer) + 1);
    const bool message = span.kind == SimulatedSpan::Kind::message;
    text += fmt::format(
        "{{\"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {:.6f}, \"dur\": {:.6f}, \"name\": \"{}\"",
        span.rank, message ? span.lane * 2 : span.lane * 2 + 1, span.begin_s * 1e6,
        (span.end_s - span.begin_s) * 1e6, message ? fmt::format("to {}", span.peer) : "reduce");
    text += message ? fmt::format(", \"args\": {{\"bytes\": {:.10g}, \"arrival_us\": {:.6f}}}}},\n",
                                  span.bytes, span.arrival_s * 1e6)
                    : "},\n";
    if (!message) continue;
    // Arrows from the last byte's departure to its arrival.
    text += fmt::format(
        "{{\"ph\": \"s\", \"id\": {0}, \"pid\": {1}, \"tid\": {2}, \"ts\": {3:.6f}, \"name\": \"m\", "
        "\"cat\": \"m\"}},\n"
        "{{\"ph\": \"f\", \"bp\": \"e\", \"id\": {0}, \"pid\": {4}, \"tid\": {2}, \"ts\": {5:.6f}, "
        "\"name\": \"m\", \"cat\": \"m\"}},\n",
        arrow++, span.rank, span.lane * 2, span.end_s * 1e6, span.peer, span.arrival_s * 1e6);
  }
  std::int32_t lanes = 0;
  for (const SimulatedSpan& span : spans) lanes = std::max(lanes, span.lane + 1);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    text += fmt::format(
        "{{\"ph\": \"M\", \"pid\": {0}, \"name\": \"process_name\", \"args\": {{\"name\": \"rank "
        "{0}\"}}}},\n"
        "{{\"ph\": \"M\", \"pid\": {0}, \"name\": \"process_sort_index\", \"args\": {{\"sort_index\": "
        "{0}}}}},\n",
        rank);
    for (std::int32_t lane = 0; lane < lanes; ++lane)
      text += fmt::format(
          "{{\"ph\": \"M\", \"pid\": {0}, \"tid\": {1}, \"name\": \"thread_name\", \"args\": {{\"name\": "
          "\"lane {2} sends\"}}}},\n"
          "{{\"ph\": \"M\", \"pid\": {0}, \"tid\": {3}, \"name\": \"thread_name\", \"args\": {{\"name\": "
          "\"lane {2} reduces\"}}}},\n",
          rank, lane * 2, lane, lane * 2 + 1);
  }
  if (text.size() >= 2 && text[text.size() - 2] == ',') text.erase(text.size() - 2, 1);
  return text + "]}\n";
}

}  // namespace tamaki::tools
