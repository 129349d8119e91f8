#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/memory_limits.hpp"
#include "base/options.hpp"
#include "bindings/c/handles.hpp"
#include "command.hpp"
#include "execute/kernels.hpp"
#include "output_file.hpp"
#include "perf/bench.hpp"
#include "select/select.hpp"

namespace tamaki::tools {
namespace {

constexpr std::size_t kPage = 4096, kHuge = std::size_t{2} << 20;
constexpr double kProgressS = 5;  // a line about where things stand, when a row takes longer

}  // namespace

tl::unexpected<Error> library_error(tmkComm_t comm, tmkResult_t result, const std::string& what) {
  return fail(static_cast<Code>(result), what + ": " + tmkGetLastError(comm));
}

void TouchedMemory::release() {
  if (base_ == nullptr) return;
  if (handle_ != nullptr) (void)tmkDeregister(comm_, handle_);
  if (kind_ == Memory::shared)
    (void)tmkMemFree(base_);
  else
    munmap(base_, mapped_);
  base_ = nullptr;
}

Status TouchedMemory::allocate(tmkComm_t comm, Memory kind, std::size_t bytes, std::size_t offset) {
  kind_ = kind;
  const std::size_t need = bytes + offset + kPage;
  if (kind == Memory::shared) {
    if (const tmkResult_t result = tmkMemAlloc(&base_, need); result != tmkSuccess)
      return library_error(nullptr, result, fmt::format("tmkMemAlloc of {} bytes", need));
    data_ = static_cast<std::byte*>(base_);
  } else {
    mapped_ = (need + kHuge - 1) / kHuge * kHuge + kHuge;
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_errno(fmt::format("mmap of {} bytes", mapped_));
    base_ = memory;
    const auto address = (reinterpret_cast<std::uintptr_t>(base_) + kHuge - 1) / kHuge * kHuge;
    data_ = reinterpret_cast<std::byte*>(address);
  }
  std::memset(data_, 1, need);
  data_ += offset;
  if (kind == Memory::registered) {
    comm_ = comm;
    if (const tmkResult_t result = tmkRegister(comm, data_, std::max<std::size_t>(bytes, 1), &handle_); result != tmkSuccess)
      return library_error(comm, result, fmt::format("tmkRegister of {} bytes", bytes));
  }
  return {};
}

Status Bench::join() {
  // For messages before the library knows.
  for (const char* name : {"TAMAKI_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"})
    if (const std::string text = environment_variable(name); !text.empty()) {
      header_.rank = std::atoi(text.c_str());
      break;
    }
  tmkConfig_t config = TMK_CONFIG_INIT;
  config.timeout_ms = options_.timeout_ms;
  config.reproducible = options_.reproducible ? 1 : -1;
  config.transports = options_.transports.empty() ? nullptr : options_.transports.c_str();
  // For the measured collective alone: perf itself needs others.
  if (!options_.algorithm.empty())
    setenv(rules_variable(collective_of(options_.kind)).c_str(), options_.algorithm.c_str(), 1);
  config.name = "perf";
  if (const tmkResult_t result = tmkCommInitEnv(&comm_, &config); result != tmkSuccess)
    return library_error(nullptr, result, "joining the job");
  measured_ = comm_;
  (void)tmkCommRank(comm_, &header_.rank);
  (void)tmkCommSize(comm_, &header_.ranks);
  if (options_.root >= header_.ranks)
    return fail(Code::invalid_argument, fmt::format("--root {} is not in 0..{}", options_.root, header_.ranks - 1));
  constexpr std::size_t kName = 64;
  std::vector<char> names(kName * static_cast<std::size_t>(header_.ranks));
  char own[kName] = {};
  gethostname(own, kName - 1);
  if (const tmkResult_t result = tmkAllgather(own, names.data(), kName, tmkBytes, comm_); result != tmkSuccess)
    return library_error(comm_, result, "exchanging host names");
  for (int rank = 0; rank < header_.ranks; ++rank)
    header_.hosts.emplace_back(&names[kName * static_cast<std::size_t>(rank)]);
  header_.transports = transports_in_use();
  header_.kernels = kernel_target();
  return {};
}

/// Names in order of preference, up to the first that reaches all others.
std::string Bench::transports_in_use() const {
  if (header_.ranks == 1) return "none (one rank)";
  std::string names;
  constexpr std::string_view kReaches = " reaches";
  for (const auto& [name, value] : comm_->impl->facts()) {
    if (name.size() <= kReaches.size() || name.compare(name.size() - kReaches.size(), kReaches.size(), kReaches) != 0) continue;
    const int reached = std::atoi(value.c_str());
    if (reached > 0) names += (names.empty() ? "" : ", ") + name.substr(0, name.size() - kReaches.size());
    if (reached == header_.ranks - 1) break;
  }
  return names;
}

std::string Bench::algorithm_of(const Shape& s, const void* send, void* recv) const {
  if (s.kind == Kind::sendrecv) return "-";
  Call call;
  call.collective = collective_of(s.kind);
  call.input = send;
  call.output = recv;
  call.count = s.send_counts.empty() ? s.count : s.send_counts[static_cast<std::size_t>(s.rank)];
  call.type = s.type;
  call.op.op = s.op;
  call.root = s.root;
  call.uneven = s.kind >= Kind::allgatherv;
  if (call.uneven) {
    call.send_counts = s.send_counts.data();
    call.recv_counts = s.recv_counts.data();
  }
  Result<std::string> name = comm_->impl->algorithm_for(call);
  return name ? *name : "?";
}

void Bench::prepare_tables(DataType type, ReduceOp op) {
  data_ = {type, op, header_.ranks};
  contributed_ = contribution(data_, header_.rank);
  result_ = reduced(data_);
}

const std::vector<std::byte>& Bench::table_of(const Segment& segment) {
  if (segment.what == Segment::What::contributed) return contributed_;
  if (segment.what == Segment::What::result) return result_;
  moved_ = moved(data_.type, segment.source, segment.block);
  return moved_;
}

Status Bench::once(const Shape& shape, const std::byte* send, std::byte* recv) {
  const tmkResult_t result = call(shape, send, recv, measured_);
  if (result == tmkSuccess) return {};
  return library_error(comm_, result, fmt::format("{} of {} bytes", name_of(shape.kind), shape.bytes));
}

Status Bench::sum(std::uint64_t* value) {
  const std::uint64_t own = *value;
  const tmkResult_t result = tmkAllreduce(&own, value, 1, tmkUint64, tmkSum, comm_);
  if (result != tmkSuccess) return library_error(comm_, result, "adding up errors");
  return {};
}

Status Bench::check(const Shape& shape, const std::byte* send, std::byte* recv, Timing* timing) {
  const std::size_t bytes = size_of(shape.type);
  // In place the two overlap: poison first, then what goes in.
  std::memset(recv, 0x5b, shape.recv_elements * bytes);
  for (const Segment& s : shape.send_data)
    fill_from(table_of(s), s.start, bytes, s.count, const_cast<std::byte*>(send) + s.at * bytes);
  if (Status status = once(shape, send, recv); !status) return status;
  if (options_.corrupt == header_.rank && !shape.recv_data.empty())
    recv[shape.recv_data.back().at * bytes] ^= std::byte{1};
  Wrong wrong;
  for (const Segment& s : shape.recv_data)
    compare_with(table_of(s), s.start, shape.type, shape.op, s.what == Segment::What::result, s.count,
                 recv + s.at * bytes, s.at, &wrong);
  if (wrong.count > 0)
    fmt::print(stderr, "tamaki perf: rank {} on {}: {} of {} bytes, {}{}: {} elements are wrong: {}\n", header_.rank,
               header_.hosts[static_cast<std::size_t>(header_.rank)], name_of(shape.kind), shape.bytes,
               name_of(shape.type), reduces(shape.kind) ? " " + std::string(name_of(shape.op)) : "", wrong.count, wrong.first);
  timing->wrong = wrong.count;
  return sum(&timing->wrong);
}

void Bench::progress(const Shape& shape, const std::string& text) {
  if (header_.rank != 0 || std::chrono::duration<double>(Clock::now() - last_news_).count() < kProgressS) return;
  last_news_ = Clock::now();
  std::fflush(table());
  fmt::print(stderr, "# {}: {}\n", format_bytes(shape.bytes), text);
}

Result<Timing> Bench::measure(const Shape& shape, const std::byte* send, std::byte* recv) {
  Timing timing;
  timing.measured = true;
  for (int i = 0; i < options_.warm_up; ++i)
    if (Status status = once(shape, send, recv); !status) return pass(std::move(status));
  std::vector<double> own, slowest(static_cast<std::size_t>(options_.repetitions));
  for (int k = 0; k < options_.repetitions; ++k) {
    if (const tmkResult_t result = tmkBarrier(comm_); result != tmkSuccess) return library_error(comm_, result, "barrier");
    const auto begin = Clock::now();
    for (int i = 0; i < options_.iterations; ++i) {
      const tmkResult_t result = call(shape, send, recv, measured_);
      if (result != tmkSuccess) return library_error(comm_, result, fmt::format("{} of {} bytes", name_of(shape.kind), shape.bytes));
    }
    own.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / options_.iterations);
    progress(shape, fmt::format("repetition {} of {}", k + 1, options_.repetitions));
  }
  const tmkResult_t result = tmkAllreduce(own.data(), slowest.data(), own.size(), tmkFloat64, tmkMax, comm_);
  if (result != tmkSuccess) return library_error(comm_, result, "collecting times");
  std::sort(slowest.begin(), slowest.end());
  const std::size_t n = slowest.size();
  timing.median_us = (slowest[(n - 1) / 2] + slowest[n / 2]) / 2;
  timing.least_us = slowest.front();
  timing.most_us = slowest.back();
  timing.algorithm_gbs = timing.median_us > 0 ? static_cast<double>(shape.bytes) / timing.median_us / 1e3 : 0;
  timing.bus_gbs = timing.algorithm_gbs * bus_factor(shape.kind, header_.ranks);
  if (options_.check)
    if (Status status = check(shape, send, recv, &timing); !status) return pass(std::move(status));
  return timing;
}

Status Bench::measure_row(const Shape& shape, Row* row) {
  row->type = shape.type;
  row->op = shape.op;
  row->bytes = shape.bytes;
  row->count = shape.count;
  row->algorithm = algorithm_of(shape, send_.data(), recv_.data());
  Result<Timing> out = measure(shape, send_.data(), recv_.data());
  if (!out) return pass(std::move(out));
  row->out_of_place = *out;
  if (!shape.in_place) return {};
  const std::size_t bytes = size_of(shape.type);
  std::byte* base = recv_.data();
  // Reduce, gather, scatter: in place means something on the root only.
  const bool rooted = has_root(shape.kind) && shape.kind != Kind::broadcast && shape.rank != shape.root;
  const std::byte* send = rooted ? send_.data() : shape.recv_larger ? base + shape.send_in_recv * bytes : base;
  std::byte* recv = rooted ? base : shape.recv_larger ? base : base + shape.recv_in_send * bytes;
  Result<Timing> in = measure(shape, send, recv);
  if (!in) return pass(std::move(in));
  row->in_place = *in;
  return {};
}

Result<bool> Bench::open_files() {
  Status opened;
  if (header_.rank == 0) {
    opened = json_.open("--json", options_.json);
    if (opened) opened = plot_.open("--plot", options_.plot);
  }
  std::uint64_t failures = opened ? 0 : 1;
  if (Status status = sum(&failures); !status) return pass(std::move(status));
  if (!opened) return pass(std::move(opened));
  return failures == 0;
}

Status Bench::write_files() {
  if (header_.rank != 0) return {};
  if (Status status = json_.write(options_.json.empty() ? "" : perf_json(options_, header_, rows_)); !status) return status;
  return plot_.write(options_.plot.empty() ? "" : perf_plot(options_, header_, rows_));
}

/// Every page will be touched: what the machine does not have is refused before the kernel ends somebody for it.
Status Bench::check_room(std::size_t largest) const {
  const std::string& own = header_.hosts[static_cast<std::size_t>(header_.rank)];
  const auto here = static_cast<std::uint64_t>(std::count(header_.hosts.begin(), header_.hosts.end(), own));
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(2 * largest, here, &bytes)) bytes = ~std::uint64_t{0};
  return check_memory(bytes, fmt::format("two buffers of {} bytes for each of {} ranks on {} (see -e)", largest, here, own));
}

Status Bench::allocate() {
  std::size_t largest = 1;
  for (const DataType type : options_.types)
    for (const std::size_t bytes : options_.sizes) {
      const Shape s = make_shape(options_.kind, type, ReduceOp::sum, options_.root, header_.rank, header_.ranks, bytes);
      largest = std::max({largest, s.send_elements * size_of(type), s.recv_elements * size_of(type)});
    }
  if (Status status = check_room(largest); !status) return status;
  if (Status status = send_.allocate(comm_, options_.memory, largest, options_.unaligned); !status) return status;
  return recv_.allocate(comm_, options_.memory, largest, options_.unaligned);
}

Result<Timing> Bench::measure_on(tmkComm_t comm, const Shape& shape) {
  measured_ = comm;
  last_news_ = Clock::now();
  Result<Timing> timing = measure(shape, send_.data(), recv_.data());
  measured_ = comm_;
  return timing;
}

Status Bench::measure_all() {
  if (Status status = allocate(); !status) return status;
  if (header_.rank == 0) fmt::print(table(), "{}", table_head(options_, header_));
  for (const DataType type : options_.types)
    for (const ReduceOp op : options_.ops) {
      if (reduces(options_.kind) && !is_defined(op, type)) continue;
      prepare_tables(type, op);
      std::size_t before = ~std::size_t{0};
      for (const std::size_t bytes : options_.sizes) {
        const Shape shape = make_shape(options_.kind, type, op, options_.root, header_.rank, header_.ranks, bytes);
        if (shape.bytes == before) continue;  // rounding has made two sizes one
        before = shape.bytes;
        last_news_ = Clock::now();
        Row row;
        if (Status status = measure_row(shape, &row); !status) return status;
        rows_.push_back(row);
        if (header_.rank != 0) continue;
        fmt::print(table(), "{}", table_row(options_, row));
        std::fflush(table());
      }
    }
  if (const tmkResult_t result = tmkBarrier(comm_); result != tmkSuccess) return library_error(comm_, result, "last barrier");
  if (header_.rank == 0) fmt::print(table(), "{}", table_foot(options_, rows_));
  return {};
}

int run_perf(const PerfOptions& options) {
  Bench bench(options);
  Status status = bench.join();
  const bool joined = status.has_value();
  if (status) {
    const Result<bool> ready = bench.open_files();
    if (ready && !*ready) return kRuntime;  // rank 0 says why
    if (!ready) status = tl::unexpected<Error>(ready.error());
  }
  if (status) status = bench.measure_all();
  if (!status) {
    char host[64] = {};
    gethostname(host, sizeof host - 1);
    std::fflush(stdout);
    fmt::print(stderr, "tamaki perf: rank {} on {}: {}\n", bench.header().rank, host, status.error().message);
    return !joined && status.error().code == Code::invalid_argument ? kUsage : kRuntime;
  }
  if (status = bench.write_files(); !status) return report_error("perf", status.error());
  // One rank tells: were it all of them, the first to end would cut the others short.
  for (const Row& row : bench.rows())
    if (bench.header().rank == 0 && row.out_of_place.wrong + row.in_place.wrong > 0) return kFinding;
  return kOk;
}

}  // namespace tamaki::tools
