// Micro-benchmarks of the reduction and copy kernels on one core, and of copies of lines that another core
// has just written. Run with --benchmark_repetitions=5 --benchmark_report_aggregates_only on an idle
// machine.

#include <benchmark/benchmark.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "execute/kernels.hpp"

namespace tamaki {
namespace {

/// `bytes` of touched memory at `offset` from a 64-byte boundary; every buffer starts in another cache set.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::size_t offset = 0)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 3 * 4096) / 4096 * 4096))),
        offset_(offset) {
    std::memset(memory_, 0, bytes + offset);
  }
  Memory(Memory&& other) noexcept : memory_(other.memory_), offset_(other.offset_) {
    other.memory_ = nullptr;
  }
  Memory& operator=(Memory&&) = delete;
  ~Memory() { std::free(memory_); }
  std::byte* data() const { return memory_ + offset_; }

 private:
  std::byte* memory_;
  std::size_t offset_;
};

/// Args: type, operation, sources, destinations, bytes of each, stream.
void reduce(benchmark::State& state) {
  const auto type = static_cast<DataType>(state.range(0));
  const auto op = static_cast<ReduceOp>(state.range(1));
  const auto bytes = static_cast<std::size_t>(state.range(4));
  std::vector<Memory> memory;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (std::int64_t i = 0; i < state.range(2) + state.range(3); ++i) {
    memory.emplace_back(bytes, static_cast<std::size_t>(i % 8) * 192);
    if (i < state.range(2)) {
      sources.push_back(memory.back().data());
    } else {
      destinations.push_back(memory.back().data());
    }
  }
  OpContext context;
  context.op = op;
  context.type = type;
  context.ranks = 2;
  KernelArguments arguments{sources, destinations, bytes / size_of(type), true};
  arguments.stream = state.range(5) != 0;
  const ReduceKernel kernel = reduce_kernel(op, type);
  for (auto _ : state) {
    kernel(context, arguments);
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(name_of(type)) + " " + std::string(name_of(op)) + " " + kernel_target());
  state.SetBytesProcessed(state.iterations() * state.range(4));
}

void latency_cases(benchmark::internal::Benchmark* b) {
  b->ArgNames({"type", "op", "src", "dst", "bytes", "stream"});
  for (std::int64_t bytes : {4, 8, 16, 32, 64, 128, 256, 512}) {
    for (std::int64_t dst : {1, 2}) b->Args({static_cast<int>(DataType::float32), 0, 2, dst, bytes, 0});
  }
  b->Args({static_cast<int>(DataType::bfloat16), 0, 2, 1, 16, 0});
  b->Args({static_cast<int>(DataType::float64), 0, 2, 1, 8, 0});
}
BENCHMARK(reduce)->Name("reduce_latency")->Apply(latency_cases);

void bandwidth_cases(benchmark::internal::Benchmark* b) {
  b->ArgNames({"type", "op", "src", "dst", "bytes", "stream"});
  for (std::int64_t bytes : {16 << 10, 256 << 10, 64 << 20}) {
    for (std::int64_t stream : {0, 1}) {
      if (stream != 0 && bytes < (1 << 20)) continue;
      for (std::int64_t dst : {1, 2})
        b->Args({static_cast<int>(DataType::float32), 0, 2, dst, bytes, stream});
    }
  }
  for (std::int64_t sources : {3, 4, 8, 16, 32, 64}) {
    b->Args({static_cast<int>(DataType::float32), 0, sources, 1, 16 << 10, 0});
    b->Args({static_cast<int>(DataType::float32), 0, sources, 1, 1 << 20, 0});
  }
}
BENCHMARK(reduce)->Name("reduce_bandwidth")->Apply(bandwidth_cases);

void every_type_and_op(benchmark::internal::Benchmark* b) {
  b->ArgNames({"type", "op", "src", "dst", "bytes", "stream"});
  for (int type = 0; type < kDataTypes; ++type) {
    for (int op = 0; op <= static_cast<int>(ReduceOp::pre_mul_sum); ++op) {
      if (is_defined(static_cast<ReduceOp>(op), static_cast<DataType>(type)))
        b->Args({type, op, 2, 1, 16 << 10, 0});
    }
  }
}
BENCHMARK(reduce)->Name("reduce_types")->Apply(every_type_and_op);

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // on failure it measures with less isolation
}

/// A thread on core 1 that writes a buffer afresh each time it is asked.
class Writer {
 public:
  explicit Writer(std::size_t bytes) : memory_(bytes), bytes_(bytes) {
    thread_ = std::thread([this] {
      pin(1);
      for (unsigned done = 0;; ++done) {
        unsigned asked = 0;
        while ((asked = asked_.load(std::memory_order_acquire)) == done) {
        }
        if (asked == kStop) return;
        std::memset(memory_.data(), static_cast<int>(asked & 0x7F), bytes_);
        written_.store(asked, std::memory_order_release);
      }
    });
  }
  ~Writer() {
    asked_.store(kStop, std::memory_order_release);
    thread_.join();
  }
  /// Waits until the other core holds all of it, modified.
  const std::byte* write() {
    const unsigned number = asked_.load(std::memory_order_relaxed) + 1;
    asked_.store(number, std::memory_order_release);
    while (written_.load(std::memory_order_acquire) != number) {
    }
    return memory_.data();
  }

 private:
  static constexpr unsigned kStop = ~0u;
  Memory memory_;
  std::size_t bytes_;
  alignas(64) std::atomic<unsigned> asked_{0};
  alignas(64) std::atomic<unsigned> written_{0};
  std::thread thread_;
};

enum CopyKind { kKernel, kMemcpy, kKernelStream };

/// Args: bytes, CopyKind, whether another core has just written the source.
void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto kind = static_cast<CopyKind>(state.range(1));
  const bool remote = state.range(2) != 0;
  Memory own(bytes), to(bytes, 192);
  std::unique_ptr<Writer> writer;
  if (remote) {
    pin(0);
    writer = std::make_unique<Writer>(bytes);
  }
  std::byte* const destinations[] = {to.data()};
  for (auto _ : state) {
    const std::byte* const from = remote ? writer->write() : own.data();
    const auto start = remote ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    if (kind == kMemcpy) {
      std::memcpy(to.data(), from, bytes);
    } else {
      copy_kernel(from, destinations, bytes, kind == kKernelStream);
    }
    benchmark::ClobberMemory();
    if (remote) {
      state.SetIterationTime(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  const char* const kinds[] = {"kernel", "memcpy", "kernel, stream"};
  state.SetLabel(kinds[kind]);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void local_copies(benchmark::internal::Benchmark* b) {
  b->ArgNames({"bytes", "kind", "remote"});
  for (std::int64_t bytes : {8, 64, 512, 4 << 10, 64 << 10, 256 << 10, 64 << 20}) {
    b->Args({bytes, kKernel, 0})->Args({bytes, kMemcpy, 0});
    if (bytes > (1 << 20)) b->Args({bytes, kKernelStream, 0});
  }
}
BENCHMARK(copy)->Name("copy_local")->Apply(local_copies);

void remote_copies(benchmark::internal::Benchmark* b) {
  b->ArgNames({"bytes", "kind", "remote"});
  for (std::int64_t bytes : {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}) {
    b->Args({bytes, kKernel, 1})->Args({bytes, kMemcpy, 1});
  }
}
BENCHMARK(copy)->Name("copy_written_by_another_core")->Apply(remote_copies)->UseManualTime();

}  // namespace
}  // namespace tamaki

BENCHMARK_MAIN();
