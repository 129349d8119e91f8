#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/options.hpp"
#include "perf/perf.hpp"

namespace tamaki::tools {
namespace {

std::string time_text(double us) { return us < 100 ? fmt::format("{:.2f}", us) : us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us); }

std::string timing_text(const PerfOptions& options, const Timing& t) {
  if (!t.measured) return fmt::format(" {:>9} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
  return fmt::format(" {:>9} {:>8.2f} {:>8.2f} {:>7}", time_text(t.median_us), t.algorithm_gbs, t.bus_gbs,
                     options.check ? std::to_string(t.wrong) : "n/a");
}

/// "a (4), b (4)": hosts with their ranks.
std::string host_text(const PerfHeader& header) {
  std::string text;
  std::vector<std::string> order;
  std::map<std::string, int> ranks;
  for (const std::string& host : header.hosts)
    if (ranks[host]++ == 0) order.push_back(host);
  for (const std::string& host : order) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", host, ranks[host]);
  return text;
}

nlohmann::json timing_json(const PerfOptions& options, const Timing& t) {
  if (!t.measured) return nullptr;
  nlohmann::json j{{"us", t.median_us}, {"us_min", t.least_us}, {"us_max", t.most_us},
                   {"algbw", t.algorithm_gbs}, {"busbw", t.bus_gbs}};
  if (options.check) j["wrong"] = t.wrong;
  return j;
}

}  // namespace

const char* name_of(Memory memory) {
  return memory == Memory::shared ? "shared" : memory == Memory::registered ? "registered" : "private";
}

Memory memory_of(std::string_view name) {
  for (const Memory memory : {Memory::shared, Memory::registered})
    if (name == name_of(memory)) return memory;
  return Memory::private_memory;
}

std::string table_head(const PerfOptions& o, const PerfHeader& h) {
  std::string text = fmt::format("# tamaki {}.{}.{}, {}, kernels {}\n", TMK_MAJOR, TMK_MINOR, TMK_PATCH, name_of(o.kind), h.kernels);
  text += fmt::format("# {} ranks on {}; started by {}\n", h.ranks, host_text(h), o.started_by);
  text += fmt::format("# transports {}; {} memory{}; warm-up {}, {} iterations, {} repetitions (median){}{}\n", h.transports,
                      name_of(o.memory), o.unaligned > 0 ? fmt::format(" + {} bytes", o.unaligned) : "", o.warm_up,
                      o.iterations, o.repetitions, o.reproducible ? "; reproducible" : "", o.check ? "; checked" : "");
  text += fmt::format("#\n# {:>12} {:>12} {:>7} {:>7} {:>5} {:>20}  {:^35}  {:^35}\n", "", "", "", "", "", "", "out of place", "in place");
  text += fmt::format("# {:>12} {:>12} {:>7} {:>7} {:>5} {:>20}", "size", "count", "type", "op", "root", "algorithm");
  for (int i = 0; i < 2; ++i) text += fmt::format("  {:>9} {:>8} {:>8} {:>7}", "time", "algbw", "busbw", "#wrong").substr(i == 0 ? 0 : 1);
  text += fmt::format("\n# {:>12} {:>12} {:>7} {:>7} {:>5} {:>20}", "(B)", "(elements)", "", "", "", "");
  for (int i = 0; i < 2; ++i) text += fmt::format("  {:>9} {:>8} {:>8} {:>7}", "(us)", "(GB/s)", "(GB/s)", "").substr(i == 0 ? 0 : 1);
  return text + "\n";
}

std::string table_row(const PerfOptions& o, const Row& r) {
  return fmt::format("  {:>12} {:>12} {:>7} {:>7} {:>5} {:>20} {}{}\n", r.bytes, r.count, name_of(r.type),
                     reduces(o.kind) ? name_of(r.op) : "none", has_root(o.kind) ? std::to_string(o.root) : "-", r.algorithm,
                     timing_text(o, r.out_of_place), timing_text(o, r.in_place));
}

std::string table_foot(const PerfOptions& o, const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  double bus = 0;
  int measured = 0;
  for (const Row& row : rows)
    for (const Timing* t : {&row.out_of_place, &row.in_place}) {
      wrong += t->wrong;
      bus += t->bus_gbs;
      measured += t->measured;
    }
  std::string text = o.check ? fmt::format("# wrong elements: {}{}\n", wrong, wrong == 0 ? " (all results are right)" : "") : "";
  if (measured > 0 && o.kind != Kind::barrier) text += fmt::format("# mean busbw: {:.3f} GB/s\n", bus / measured);
  return text;
}

std::string perf_json(const PerfOptions& o, const PerfHeader& h, const std::vector<Row>& rows) {
  nlohmann::json j{{"version", fmt::format("{}.{}.{}", TMK_MAJOR, TMK_MINOR, TMK_PATCH)},
                   {"collective", name_of(o.kind)},
                   {"ranks", h.ranks},
                   {"hosts", h.hosts},
                   {"started_by", o.started_by},
                   {"transports", h.transports},
                   {"kernels", h.kernels},
                   {"memory", name_of(o.memory)},
                   {"unaligned", o.unaligned},
                   {"warm_up", o.warm_up},
                   {"iterations", o.iterations},
                   {"repetitions", o.repetitions},
                   {"reproducible", o.reproducible},
                   {"checked", o.check},
                   {"units", {{"bytes", "of the largest buffer of a rank"}, {"us", "median over repetitions of the slowest rank"}, {"algbw", "10^9 bytes/s"}, {"busbw", "10^9 bytes/s"}}}};
  if (has_root(o.kind)) j["root"] = o.root;
  j["rows"] = nlohmann::json::array();
  for (const Row& r : rows) {
    nlohmann::json row{{"bytes", r.bytes}, {"count", r.count}, {"type", name_of(r.type)}, {"algorithm", r.algorithm},
                       {"out_of_place", timing_json(o, r.out_of_place)}, {"in_place", timing_json(o, r.in_place)}};
    if (reduces(o.kind)) row["op"] = name_of(r.op);
    j["rows"].push_back(std::move(row));
  }
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tamaki::tools
