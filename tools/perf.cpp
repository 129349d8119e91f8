// tamaki perf: arguments, and the ranks that carry it out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "arguments.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "info/settings.hpp"
#include "launch/launcher.hpp"
#include "perf/perf.hpp"
#include "select/select.hpp"
#include "simulate/sweep.hpp"
#include "transports/transport.hpp"

namespace tamaki::tools {
namespace {

struct PerfArguments {
  PerfOptions options;
  std::string collective, begin = "8", end = "64M", step, types = "f32", ops = "sum", memory = "private", bind = "auto", hosts,
              remote_shell = LaunchJob{}.remote_shell;
  double factor = 2;
  int ranks = 0;
  bool worker = false;
};

constexpr const char* kFooter = R"(
Columns: time is the slowest rank's for one call, the median over repetitions; algbw = size / time; busbw = algbw times
what each byte costs on the bus (allreduce 2(p-1)/p; allgather, reduce_scatter, gather, scatter, alltoall (p-1)/p;
others 1), as nccl-tests counts. For collectives of blocks the size is that of the largest buffer of a rank.
--check compares every element with an exact result: #wrong is the number of elements that differ.

Without -n, perf joins the job it finds itself in (mpirun, srun, torchrun, tamaki run), or else starts one rank for
each core, at least two.

Examples:
  tamaki perf allreduce -n 4 -b 8 -e 256M -f 2 -t f32 -o sum -w 5 -i 20 --check
  tamaki perf allreduce -n 2 -b 4K -e 64M --memory shared --algorithm direct:0-1M,ring:1M- --plot allreduce.svg
  tamaki perf alltoallv -n 5 -b 1K -e 1K -t all --check
  mpirun -n 4 tamaki perf reduce_scatter -e 1M --json result.json
  tamaki perf allreduce -n 8 -f 4 --tune auto     jobs on this machine then choose by what was measured
  tamaki perf broadcast --hosts a:2,b:2 --transport tcp -e 16M

Exit status: 0 in order, 1 wrong results, 2 wrong usage, 3 an error on some rank (its text is printed)
or a file that cannot be written.)";

template <class T>
std::vector<std::string> names_of(int known) {
  std::vector<std::string> names;
  for (int i = 0; i < known; ++i) names.emplace_back(name_of(static_cast<T>(i)));
  return names;
}

/// `option`: "-t", for messages. A value given twice counts once.
template <class T, class Parse>
Status parse_list(const std::string& text, const std::string& option, const char* what, int known, Parse parse, std::vector<T>* list) {
  const std::vector<std::string> names = names_of<T>(known);
  list->clear();
  const auto add = [&](T value) {
    if (std::find(list->begin(), list->end(), value) == list->end()) list->push_back(value);
  };
  for (const std::string& name : split_list(text)) {
    if (name == "all") {
      for (int i = 0; i < known; ++i) add(static_cast<T>(i));
      continue;
    }
    const auto value = parse(name);
    if (!value || static_cast<int>(*value) >= known)
      return fail(Code::invalid_argument, option + ": " + unknown_name(what, name, names) + " and all");
    add(*value);
  }
  if (list->empty()) return fail(Code::invalid_argument, fmt::format("{}: \"{}\" names no {}", option, text, what));
  return {};
}

constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 50;
constexpr int kMostSizes = 100000;

Status parse_size(const char* option, const std::string& text, std::uint64_t least, std::uint64_t* size) {
  const Result<std::uint64_t> parsed = parse_bytes(text);
  if (!parsed) return fail(Code::invalid_argument, fmt::format("{}: {}, in {}..{}", option, parsed.error().message, least, format_bytes(kLargestSize)));
  if (*parsed < least || *parsed > kLargestSize)
    return fail(Code::invalid_argument, fmt::format("{}: \"{}\" is not a size in {}..{}", option, text, least, format_bytes(kLargestSize)));
  *size = *parsed;
  return {};
}

Status parse_sizes(const PerfArguments& a, std::vector<std::size_t>* sizes) {
  std::uint64_t begin = 0, end = 0, step = 0;
  if (Status s = parse_size("-b", a.begin, 0, &begin); !s) return s;
  if (Status s = parse_size("-e", a.end, 0, &end); !s) return s;
  if (begin > end)
    return fail(Code::invalid_argument, fmt::format("-b {} is larger than -e {}{}", a.begin, a.end, a.end == PerfArguments().end ? " (its default)" : ""));
  if (!a.step.empty()) {
    if (Status s = parse_size("-s", a.step, 1, &step); !s) return s;
    if ((end - begin) / step >= kMostSizes)
      return fail(Code::invalid_argument, fmt::format("-s: \"{}\" makes {} sizes of {}..{}; at most {}", a.step, (end - begin) / step + 1, a.begin, a.end, kMostSizes));
  }
  sizes->clear();
  for (std::uint64_t size = begin; size <= end;) {
    sizes->push_back(size);
    size = step > 0 ? size + step : std::max(size + 1, static_cast<std::uint64_t>(static_cast<double>(size) * a.factor));
  }
  return {};
}

/// The files, and where the table goes beside them.
Status check_outputs(const PerfOptions& o) {
  if (o.json.empty() || o.json != o.plot) return {};
  return fail(Code::invalid_argument, fmt::format("--json and --plot both write to {}", o.json == "-" ? "stdout" : "\"" + o.json + "\""));
}

Status interpret(PerfArguments* a) {
  PerfOptions& o = a->options;
  if (!parse_kind(a->collective, &o.kind))
    return fail(Code::invalid_argument, unknown_name("collective", a->collective, names_of<Kind>(kKinds)));
  if (Status s = parse_list(a->types, "-t", "type", kDataTypes, parse_data_type, &o.types); !s) return s;
  if (Status s = parse_list(a->ops, "-o", "operation", kPredefinedOps, parse_reduce_op, &o.ops); !s) return s;
  if (!reduces(o.kind)) o.ops = {ReduceOp::sum};
  if (Status s = parse_sizes(*a, &o.sizes); !s) return s;
  if (o.kind == Kind::barrier) {
    o.sizes = {0};
    o.types = {o.types.front()};
  }
  if (reduces(o.kind)) {
    bool any = false;
    for (const DataType type : o.types)
      for (const ReduceOp op : o.ops) any = any || is_defined(op, type);
    if (!any) return fail(Code::invalid_argument, fmt::format("-o {} of -t {} has no meaning", a->ops, a->types));
  }
  if (o.kind == Kind::sendrecv && !o.algorithm.empty())
    return fail(Code::invalid_argument, "--algorithm: sendrecv has none");
  if (!o.algorithm.empty()) {
    auto rules = parse_rules(collective_of(o.kind), o.algorithm);
    if (!rules) return fail(Code::invalid_argument, "--algorithm: " + rules.error().message);
    if (const Status loaded = load_files(collective_of(o.kind), &*rules); !loaded)
      return fail(loaded.error().code, "--algorithm: " + loaded.error().message);
  }
  if (!o.transports.empty())
    if (Status s = check_transports(o.transports); !s) return fail(s.error().code, "--transport: " + s.error().message);
  if (!o.tune.empty()) {
    if (o.kind == Kind::sendrecv || o.kind >= Kind::allgatherv)
      return fail(Code::invalid_argument, fmt::format("--tune: {} has no candidates; there are those with blocks of one size", a->collective));
    if (o.types.size() != 1 || o.ops.size() != 1) return fail(Code::invalid_argument, "--tune: it takes one type and one operation");
    if (!o.algorithm.empty() || !o.json.empty() || !o.plot.empty() || o.check)
      return fail(Code::invalid_argument, "--tune does not go with --algorithm, --check, --json and --plot");
  }
  if (a->ranks > 0 && o.root >= a->ranks)
    return fail(Code::invalid_argument, fmt::format("--root {} is not in 0..{} (-n {})", o.root, a->ranks - 1, a->ranks));
  if (Status s = check_outputs(o); !s) return s;
  o.memory = memory_of(a->memory);
  return {};
}

/// Starts `tamaki perf --worker` with the same arguments on every rank.
Result<int> launch_workers(const PerfArguments& a, const std::vector<std::string>& arguments) {
  Result<std::string> self = own_path();
  if (!self) return pass(std::move(self));
  LaunchJob job;
  job.program = {*self};
  job.program.insert(job.program.end(), arguments.begin(), arguments.end());
  job.program.emplace_back("--worker");
  const int ranks = a.ranks > 0 ? a.ranks : std::max(2, allowed_cores());
  job.parts = {{"", 0, ranks, 0, ranks}};
  if (!a.hosts.empty()) {
    Result<std::vector<HostSlots>> hosts = parse_hosts(a.hosts);
    if (!hosts) return fail(hosts.error().code, "--hosts: " + hosts.error().message);
    Result<std::vector<HostPart>> parts = place_ranks(*hosts, a.ranks);
    if (!parts) return fail(parts.error().code, fmt::format("--hosts \"{}\": {}", a.hosts, parts.error().message));
    job.parts = std::move(*parts);
  }
  job.remote_shell = a.remote_shell;
  job.bind = a.bind == "core" ? Bind::core : a.bind == "none" ? Bind::none : Bind::automatic;
  job.tag = LaunchJob::Tag::none;
  job.input = LaunchJob::Input::none;
  job.linger_s = 3;
  job.caller = "tamaki perf";
  job.ends = LaunchJob::Ends::told_if_unusual;
  return launch(job);
}

}  // namespace

std::string surrounding_launcher() {
  const auto set = [](const char* name) { return !environment_variable(name).empty(); };
  if (set("TAMAKI_RANK")) return "tamaki run";
  if (set("OMPI_COMM_WORLD_RANK")) return "Open MPI";
  if (set("PMI_RANK")) return "MPICH/Hydra";
  if (set("SLURM_PROCID") && set("SLURM_STEP_ID")) return "Slurm";
  if (set("RANK") && set("WORLD_SIZE")) return "torchrun";
  return {};
}

void add_perf(CLI::App& app, const std::vector<std::string>& arguments, int* status) {
  auto a = std::make_shared<PerfArguments>();
  CLI::App* sub = app.add_subcommand("perf", "Measure and check a collective over a range of sizes");
  sub->footer(kFooter);
  sub->add_option("collective", a->collective, kind_names())->required();
  sub->add_option("-n,--ranks", a->ranks, "start so many ranks (default: join the job around, or one a core)")->transform(whole_number(1, kMostRanks));
  sub->add_option("-b,--begin", a->begin, "smallest size, e.g. 8, 4K, 1M")->capture_default_str();
  sub->add_option("-e,--end", a->end, "largest size")->capture_default_str();
  auto* factor = sub->add_option("-f,--factor", a->factor, "factor from one size to the next")->check(real_number(1.01, 1e6, ""))->capture_default_str();
  sub->add_option("-s,--step", a->step, "bytes from one size to the next, instead of -f")->check(not_empty())->excludes(factor);
  sub->add_option("-t,--type", a->types, fmt::format("data types, comma-separated, or all: {}", fmt::join(names_of<DataType>(kDataTypes), " ")))->capture_default_str();
  sub->add_option("-o,--op", a->ops, fmt::format("operations, comma-separated, or all: {}", fmt::join(names_of<ReduceOp>(kPredefinedOps), " ")))->capture_default_str();
  sub->add_option("--root", a->options.root, "root of rooted collectives")->transform(whole_number(0, kMostRanks - 1))->capture_default_str();
  sub->add_option("-w,--warm-up", a->options.warm_up, "calls before the clock starts")->transform(whole_number(0, 1000000))->capture_default_str();
  sub->add_option("-i,--iterations", a->options.iterations, "calls a repetition")->transform(whole_number(1, 10000000))->capture_default_str();
  sub->add_option("-R,--repetitions", a->options.repetitions, "repetitions; the median is shown")->transform(whole_number(1, 100000))->capture_default_str();
  sub->add_flag("-c,--check", a->options.check, "check every element of the result");
  sub->add_option("--memory", a->memory, "private; shared: of tmkMemAlloc; registered: private memory given to tmkRegister")->check(CLI::IsMember({"private", "shared", "registered"}))->capture_default_str();
  sub->add_option("-u,--unaligned", a->options.unaligned, "buffers start so many bytes after a page")->transform(whole_number(0, 4095))->capture_default_str();
  sub->add_option("--transport", a->options.transports, "transports in order of preference, comma-separated: " + transport_names())->check(not_empty());
  sub->add_option("--algorithm", a->options.algorithm, "name, or by size: direct:0-16K,ring/lanes=2:16K-; file:PATH is a schedule of one's own (docs/selection.md)")->check(not_empty());
  sub->add_flag("--reproducible", a->options.reproducible, "same bits whatever the algorithm, lanes, chunks and placement");
  sub->add_option("--timeout-ms", a->options.timeout_ms, "deadline of each operation, in ms")->transform(whole_number(1, 2147483647));
  sub->add_option("--json", a->options.json, "write results to a file, or to stdout with - (the table then goes to stderr)")->check(not_empty());
  sub->add_option("--plot", a->options.plot, "write an SVG with bandwidth and time over size, likewise")->check(not_empty());
  sub->add_option("--bind", a->bind, "core, none, or auto: core unless there are more ranks than cores")->check(CLI::IsMember({"auto", "core", "none"}))->capture_default_str();
  auto* hosts = sub->add_option("--hosts", a->hosts, "start ranks on these hosts, e.g. a:2,b:2")->check(not_empty());
  sub->add_option("--rsh", a->remote_shell, "remote shell for --hosts")->check(not_empty())->needs(hosts)->capture_default_str();
  sub->add_option("--tune", a->options.tune, "measure every candidate and add the times to this tuning table; auto: the one that jobs read")->check(not_empty());
  sub->add_flag("--worker", a->worker)->group("");
  sub->add_option("--corrupt", a->options.corrupt)->group("");
  sub->callback([=] {
    Status good = interpret(a.get());
    if (!good) {
      *status = report_error("perf", good.error());
      return;
    }
    const bool joins = a->worker || (a->ranks == 0 && a->hosts.empty() && !surrounding_launcher().empty());
    if (joins) {
      a->options.started_by = a->worker ? "tamaki perf" : surrounding_launcher();
      *status = a->options.tune.empty() ? run_perf(a->options) : run_tune(a->options);
      return;
    }
    Result<int> result = launch_workers(*a, arguments);
    *status = result ? *result : report_error("perf", result.error());
  });
}

}  // namespace tamaki::tools
