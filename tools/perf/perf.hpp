#pragma once
// tamaki perf: what is asked for, what comes out, and the parts that make one of the other.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "perf/shape.hpp"

namespace tamaki::tools {

enum class Memory { private_memory, shared, registered };
const char* name_of(Memory memory);
Memory memory_of(std::string_view name);

struct PerfOptions {
  Kind kind = Kind::allreduce;
  std::vector<DataType> types;
  std::vector<ReduceOp> ops;       // one (ignored) where nothing is reduced
  std::vector<std::size_t> sizes;  // bytes
  int root = 0;
  int warm_up = 5, iterations = 20, repetitions = 3;
  bool check = false;
  Memory memory = Memory::private_memory;
  std::size_t unaligned = 0;       // bytes that buffers start after a page
  std::string transports, algorithm;
  bool reproducible = false;
  int timeout_ms = -1;
  std::string tune;                // tuning table that is written; empty: no tuning
  std::string json, plot;          // files; empty: none; "-": stdout
  std::string started_by;          // for the header
  int corrupt = -1;                // this rank spoils a bit of each result before it is checked: tests the check
};

/// Microseconds a call, the slowest rank's; over the repetitions.
struct Timing {
  bool measured = false;
  double median_us = 0, least_us = 0, most_us = 0;
  std::uint64_t wrong = 0;         // elements, of all ranks
  double algorithm_gbs = 0, bus_gbs = 0;  // 10^9 bytes a second, of the median
};

struct Row {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t bytes = 0, count = 0;
  std::string algorithm;
  Timing out_of_place, in_place;
};

struct PerfHeader {
  int rank = 0, ranks = 1;
  std::vector<std::string> hosts;  // of each rank
  std::string transports;          // in use
  std::string kernels;
};

/// Joins the job, measures, and on rank 0 reports. Exit status; errors have been printed.
int run_perf(const PerfOptions& options);

/// The same for `options.tune`: measures every candidate of the collective over the sizes, and rank 0 adds the times to the
/// table.
int run_tune(const PerfOptions& options);

/// The launcher whose environment this process finds itself in, in words ("Open MPI"), or empty.
std::string surrounding_launcher();

std::string table_head(const PerfOptions& options, const PerfHeader& header);
std::string table_row(const PerfOptions& options, const Row& row);
std::string table_foot(const PerfOptions& options, const std::vector<Row>& rows);
std::string perf_json(const PerfOptions& options, const PerfHeader& header, const std::vector<Row>& rows);
/// SVG: bandwidth over size and time over size, both axes logarithmic; colours follow the reader's light or dark mode.
std::string perf_plot(const PerfOptions& options, const PerfHeader& header, const std::vector<Row>& rows);

}  // namespace tamaki::tools
