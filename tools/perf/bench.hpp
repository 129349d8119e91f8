#pragma once
// The ranks of a measurement: they join the job, hold the buffers, time calls and check results.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "output_file.hpp"
#include "perf/perf.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::tools {

/// Error of the library, with what was being done.
tl::unexpected<Error> library_error(tmkComm_t comm, tmkResult_t result, const std::string& what);

/// Memory for the largest size, every page touched.
class TouchedMemory {
 public:
  TouchedMemory() = default;
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;
  ~TouchedMemory() { release(); }
  /// Must come before the communicator is destroyed.
  void release();
  Status allocate(tmkComm_t comm, Memory kind, std::size_t bytes, std::size_t offset);
  std::byte* data() const { return data_; }

 private:
  Memory kind_ = Memory::private_memory;
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  tmkComm_t comm_ = nullptr;
  void* handle_ = nullptr;  // of tmkRegister
  std::byte* data_ = nullptr;
};

class Bench {
 public:
  explicit Bench(const PerfOptions& options) : options_(options) {}
  ~Bench() {
    send_.release();
    recv_.release();
    if (comm_ != nullptr) (void)tmkCommDestroy(comm_);
  }
  Status join();
  /// Rank 0 opens the files that are asked for. All ranks learn whether it could; rank 0 has the reason.
  Result<bool> open_files();
  Status measure_all();
  Status write_files();
  /// Buffers for all sizes of the options.
  Status allocate();
  /// Timed on `comm`, a communicator of all ranks; out of place.
  Result<Timing> measure_on(tmkComm_t comm, const Shape& shape);
  tmkComm_t comm() const { return comm_; }
  const PerfHeader& header() const { return header_; }
  const std::vector<Row>& rows() const { return rows_; }
  std::FILE* table() const { return options_.json == "-" || options_.plot == "-" ? stderr : stdout; }

 private:
  using Clock = std::chrono::steady_clock;
  Status check_room(std::size_t largest) const;
  Status measure_row(const Shape& shape, Row* row);
  Result<Timing> measure(const Shape& shape, const std::byte* send, std::byte* recv);
  Status check(const Shape& shape, const std::byte* send, std::byte* recv, Timing* timing);
  void prepare_tables(DataType type, ReduceOp op);
  const std::vector<std::byte>& table_of(const Segment& segment);
  Status sum(std::uint64_t* value);
  std::string transports_in_use() const;
  Status once(const Shape& shape, const std::byte* send, std::byte* recv);
  std::string algorithm_of(const Shape& shape, const void* send, void* recv) const;
  void progress(const Shape& shape, const std::string& text);

  const PerfOptions& options_;
  PerfHeader header_;
  tmkComm_t comm_ = nullptr;
  tmkComm_t measured_ = nullptr;  // that calls are timed on; comm_, but for measure_on()
  TouchedMemory send_, recv_;
  OutputFile json_, plot_;
  std::vector<Row> rows_;
  ReducedData data_;
  std::vector<std::byte> contributed_, result_, moved_;
  Clock::time_point last_news_;
};

}  // namespace tamaki::tools
