// tamaki simulate: how long the algorithms would take on a machine that is described.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "arguments.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "output_file.hpp"
#include "problem_set.hpp"
#include "simulate/parallel.hpp"
#include "simulate/sweep.hpp"
#include "topology/recognize.hpp"

namespace tamaki::tools {
namespace {

struct SimulateArguments {
  std::string cluster, collective = "allreduce", algorithm = "all", bytes = "1G", order = "slot";
  std::string lanes = "auto", pieces = "auto", radix = "2", slices = "1";
  std::string parallel, parallel_order = "tp-dp-pp", groups = "dp", placement = "best";
  std::string json, plot, trace, heatmap;
  std::vector<std::string> slow_links, slow_hosts;
  int ranks = 0, root = 0, jobs = 0;
  std::uint64_t seed = 0;
  bool network_only = false, quiet = false;
};

constexpr int kMostSlices = 4096;

constexpr const char* kFooter = R"(
CLUSTER is torus:8x8x8, mesh:4x4, hosts:4x2, rails:100x8, a description (`tamaki topo --list`) as
fugaku:48x6x48 or sakuraone, or a path of one; see `tamaki topo --help`.

Examples:
  tamaki simulate --cluster fugaku:48x6x48 --collective allreduce --bytes 1G --algorithm all
  tamaki simulate --cluster sakuraone --bytes 1K..4G --plot sweep.svg --json sweep.json
  tamaki simulate --cluster torus:8x8x8 --algorithm torus --bytes 64M --heatmap links.svg
  tamaki simulate --cluster hosts:4x2 --algorithm ring --bytes 1M --trace ring.trace.json
  tamaki simulate --cluster fugaku:48x6x48 --order first --parallel 6x8x288 --groups dp --bytes 1G
                          the allreduces of all data parallel groups at once, as ranks come and as
                          they are placed best (--groups pp: what stages send each other)
  tamaki simulate --cluster rails:4x8 --algorithm rail --slow-link "nic 3 of host 1, out=0.25"

Exit status: 0 in order, 2 wrong usage (also: every algorithm refuses), 3 a file cannot be written.)";

/// "NAME=0.25" -> name and factor.
Result<std::pair<std::string, double>> parse_factor(const char* option, const std::string& text) {
  const auto equals = text.rfind('=');
  double factor = -1;
  if (equals != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + equals + 1, end, factor);
    if (read.ec != std::errc() || read.ptr != end) factor = -1;
  }
  if (!(factor >= 0 && factor <= 1))
    return fail(Code::invalid_argument,
                fmt::format("{}: \"{}\" must end in = and a factor in 0..1, as =0.25", option, text));
  return std::pair(text.substr(0, equals), factor);
}

Status add_faults(const SimulateArguments& a, std::vector<Fault>* faults) {
  for (const std::string& text : a.slow_links) {
    Result<std::pair<std::string, double>> parsed = parse_factor("--slow-link", text);
    if (!parsed) return pass(std::move(parsed));
    faults->push_back({.kind = Fault::Kind::link, .link = parsed->first, .factor = parsed->second});
  }
  for (const std::string& text : a.slow_hosts) {
    Result<std::pair<std::string, double>> parsed = parse_factor("--slow-host", text);
    if (!parsed) return pass(std::move(parsed));
    Fault fault{.kind = Fault::Kind::host, .factor = parsed->second};
    const char* end = parsed->first.data() + parsed->first.size();
    const auto read = std::from_chars(parsed->first.data(), end, fault.host);
    if (read.ec != std::errc() || read.ptr != end)
      return fail(
          Code::invalid_argument,
          fmt::format("--slow-host: \"{}\" must be a host's number, = and a factor, as 3=0.5", text));
    faults->push_back(fault);
  }
  return {};
}

Result<SweepOptions> interpret(const SimulateArguments& a) {
  SweepOptions options;
  if (Status laid = lay_out(a.cluster, a.ranks, a.order, a.seed, &options); !laid) return pass(std::move(laid));
  if (a.network_only) {
    options.machine.model.reduce_bandwidth = 0;
    options.machine.model.copy_bandwidth = 0;
  }
  const std::int32_t ranks = options.placement.size();
  if (a.root >= ranks)
    return fail(Code::invalid_argument, fmt::format("--root {} is not in 0..{}", a.root, ranks - 1));
  options.root = a.root;
  if (split_list(a.collective).size() != 1)
    return fail(Code::invalid_argument,
                fmt::format("--collective: \"{}\" must be one collective", a.collective));
  if (!a.parallel.empty() && a.groups == "pp") {
    options.algorithms = {&k_stage_send};
  } else {
    Result<std::vector<const Algorithm*>> found =
        find_algorithms(a.collective, a.algorithm == "all" ? "" : a.algorithm);
    if (!found) return pass(std::move(found));
    options.algorithms = std::move(*found);
  }
  Result<std::vector<double>> sizes = parse_sizes(a.bytes, "--bytes");
  if (!sizes) return pass(std::move(sizes));
  options.sizes = std::move(*sizes);
  if (options.algorithms.front()->collective == Collective::barrier) options.sizes = {0};
  const auto wish = [&](const char* option, const std::string& text, std::vector<int> preset,
                        std::vector<int>* values) -> Status {
    if (text == "auto") {
      *values = std::move(preset);
      return {};
    }
    Result<std::vector<int>> parsed = parse_numbers(text, option);
    if (!parsed) return pass(std::move(parsed));
    *values = std::move(*parsed);
    return {};
  };
  const Wishes automatic = default_wishes(options.topology);
  if (Status s = wish("--lanes", a.lanes, automatic.lanes, &options.wishes.lanes); !s)
    return tl::unexpected<Error>(s.error());
  if (a.lanes == "auto") options.wishes.longest_of_lanes = automatic.longest_of_lanes;
  if (Status s = wish("--pieces", a.pieces, automatic.pieces, &options.wishes.pieces); !s)
    return tl::unexpected<Error>(s.error());
  if (Status s = wish("--radix", a.radix, automatic.radices, &options.wishes.radices); !s)
    return tl::unexpected<Error>(s.error());
  if (Status s = wish("--slices", a.slices, {1, 2, 4, 8, 16}, &options.slices); !s)
    return tl::unexpected<Error>(s.error());
  if (options.slices.back() > kMostSlices)
    return fail(Code::invalid_argument,
                fmt::format("--slices: {} is not in 1..{}", options.slices.back(), kMostSlices));
  options.network.seed = a.seed;
  if (Status s = add_faults(a, &options.network.faults); !s) return tl::unexpected<Error>(s.error());
  options.threads = a.jobs > 0 ? a.jobs : allowed_cores();
  return options;
}

/// The run that --trace and --heatmap show: the fastest at the largest size.
Result<const SweepCell*> shown_cell(const SweepOptions& options, const Sweep& sweep) {
  const int best = sweep.best(options.sizes.size() - 1);
  if (best < 0)
    return fail(Code::invalid_argument,
                fmt::format("no algorithm ran with {} bytes", options.sizes.back()));
  return &sweep.rows[static_cast<std::size_t>(best)].cells.back();
}

Status write_pictures(const SweepOptions& options, const Sweep& sweep, OutputFile* heatmap,
                      bool wants_heatmap, OutputFile* trace, bool wants_trace) {
  if (!wants_heatmap && !wants_trace) return {};
  const Result<const SweepCell*> cell = shown_cell(options, sweep);
  if (!cell) return tl::unexpected<Error>(cell.error());
  const double bytes = options.sizes.back();
  if (wants_heatmap) {
    const Result<std::unique_ptr<Network>> network =
        Network::of(options.machine, options.placement, options.network);
    if (!network) return tl::unexpected<Error>(network.error());
    const Candidate& c = (*cell)->candidate;
    const std::string title =
        fmt::format("{}: {} {}, {} bytes, {}: time in use of each link", options.machine.name,
                    name_of(c.algorithm->collective), c.algorithm->name, short_bytes(bytes),
                    short_time((*cell)->simulation.seconds));
    if (Status s = heatmap->write(link_heatmap(**network, (*cell)->simulation, title)); !s) return s;
  }
  if (!wants_trace) return {};
  std::vector<SimulatedSpan> spans;
  const Result<Simulation> timed =
      time_with_spans(options, (*cell)->candidate, bytes, (*cell)->slices, &spans);
  if (!timed) return fail(timed.error().code, "--trace: " + timed.error().message);
  return trace->write(trace_json(spans));
}

using Progress = std::function<void(const std::string&, int, int)>;

int run_groups(const SimulateArguments& a, const SweepOptions& options, const Progress& progress) {
  const auto failed = [](const Error& error) { return report_error("simulate", error); };
  ParallelOptions parallel{.order = a.parallel_order};
  const Result<ParallelSizes> sizes = parse_parallel(a.parallel);
  if (!sizes) return failed(sizes.error());
  parallel.sizes = *sizes;
  parallel.kind = a.groups == "tp"   ? ParallelOptions::Kind::tp
                  : a.groups == "pp" ? ParallelOptions::Kind::pp
                                     : ParallelOptions::Kind::dp;
  parallel.places = a.placement == "given" ? ParallelOptions::Places::given
                    : a.placement == "all" ? ParallelOptions::Places::all
                                           : ParallelOptions::Places::best;
  OutputFile json;
  if (Status s = json.open("--json", a.json); !s) return failed(s.error());
  const Result<std::vector<ParallelRow>> rows = run_parallel(options, parallel, progress);
  progress("", 0, 0);
  if (!rows) return failed(rows.error());
  if (a.json != "-") fmt::print("{}", parallel_table(parallel, *rows));
  if (Status s = json.write(a.json.empty() ? "" : parallel_json(parallel, *rows)); !s) return failed(s.error());
  const Sweep& first = rows->front().sweep;
  return first.best(options.sizes.size() - 1) >= 0 ? kOk : kUsage;
}

int run_simulate(const SimulateArguments& a) {
  const auto failed = [](const Error& error) { return report_error("simulate", error); };
  const Result<SweepOptions> options = interpret(a);
  if (!options) return failed(options.error());
  const bool tell = !a.quiet && isatty(STDERR_FILENO) != 0;
  const Progress progress = [&](const std::string& now, int done, int all) {
    if (tell) fmt::print(stderr, "\r\033[K{}", all > 0 ? fmt::format("{} of {} done; {}", done, all, now) : "");
  };
  if (!a.parallel.empty()) return run_groups(a, *options, progress);
  OutputFile json, plot, trace, heatmap;
  if (Status s = json.open("--json", a.json); !s) return failed(s.error());
  if (Status s = plot.open("--plot", a.plot); !s) return failed(s.error());
  if (Status s = trace.open("--trace", a.trace); !s) return failed(s.error());
  if (Status s = heatmap.open("--heatmap", a.heatmap); !s) return failed(s.error());
  const Result<Sweep> sweep = run_sweep(*options, progress);
  progress("", 0, 0);
  if (!sweep) return failed(sweep.error());
  const bool to_stdout = a.json == "-" || a.plot == "-" || a.trace == "-" || a.heatmap == "-";
  if (!to_stdout) fmt::print("{}", sweep_table(*options, *sweep));
  if (Status s = json.write(a.json.empty() ? "" : sweep_json(*options, *sweep)); !s)
    return failed(s.error());
  if (Status s = plot.write(a.plot.empty() ? "" : sweep_plot(*options, *sweep)); !s)
    return failed(s.error());
  if (Status s = write_pictures(*options, *sweep, &heatmap, !a.heatmap.empty(), &trace, !a.trace.empty());
      !s)
    return failed(s.error());
  const bool any = std::any_of(sweep->rows.begin(), sweep->rows.end(),
                               [](const SweepRow& row) { return row.refused.empty(); });
  return any ? kOk : kUsage;
}

}  // namespace

void add_simulate(CLI::App& app, int* status) {
  auto a = std::make_shared<SimulateArguments>();
  CLI::App* sub = app.add_subcommand("simulate", "Time algorithms on a machine that is described");
  sub->footer(kFooter);
  sub->add_option("--cluster", a->cluster, "the machine, see below")->required()->check(not_empty());
  sub->add_option("--collective", a->collective, "e.g. allreduce")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--algorithm", a->algorithm, "names, comma-separated, or all")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("-b,--bytes", a->bytes,
                  "sizes: 1G, 1K,1M, 1K..4G (doubling), 1K..4G*4; of the vector, or of all ranks' blocks")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("-n,--ranks", a->ranks, "ranks (default: all that the machine takes)")
      ->transform(whole_number(1, kMostDescribed));
  sub->add_option("--order", a->order,
                  "slot: fill a host, then the next; host: one rank a host, round and round; first: along "
                  "the first dimension of a torus first; random: by chance (--seed)")
      ->check(CLI::IsMember({"slot", "host", "first", "random"}))
      ->capture_default_str();
  sub->add_option("--root", a->root, "root of rooted collectives")
      ->transform(whole_number(0, kMostDescribed - 1))
      ->capture_default_str();
  sub->add_option("--lanes", a->lanes,
                  "independent streams to try; auto: 1, the ports of a host, 8 and 32 where ranks share hosts (above 4,096 ranks: 1, and the ports for trees and the like)")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--pieces", a->pieces, "chunks a lane or block to try; auto: 1, 8, 32, 128 (1, 8, 32)")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--radix", a->radix, "k of k-nomial trees, radix of Bruck, to try; auto: 2, 4, 8")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--slices", a->slices, "pipelining inside chunks to try; auto: 1, 2, 4, 8, 16")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--seed", a->seed, "of routes that are chosen by hash, and of --order random")->capture_default_str();
  sub->add_flag("--network-only", a->network_only, "reductions and copies cost nothing");
  sub->add_option("--slow-link", a->slow_links, "NAME=FACTOR: a link has this share of its rate; 0: broken")
      ->check(not_empty());
  sub->add_option("--slow-host", a->slow_hosts,
                  "NUMBER=FACTOR: so have the engines and processors of a host")
      ->check(not_empty());
  auto* parallel = sub->add_option("--parallel", a->parallel,
                                   "TPxPPxDP: time communicators of such training, all of a kind at once")
                       ->check(not_empty());
  sub->add_option("--parallel-order", a->parallel_order, "the three from fastest to slowest in the rank")
      ->capture_default_str()
      ->needs(parallel);
  sub->add_option("--groups", a->groups, "which: tp, dp (a collective), pp (each stage sends to the next)")
      ->check(CLI::IsMember({"tp", "pp", "dp"}))
      ->capture_default_str()
      ->needs(parallel);
  sub->add_option("--placement", a->placement,
                  "given: ranks in --order; best: that, and the best cut of the torus into blocks; all: every cut")
      ->check(CLI::IsMember({"given", "best", "all"}))
      ->capture_default_str()
      ->needs(parallel);
  sub->add_option("-j,--jobs", a->jobs, "threads (default: one a core)")->transform(whole_number(1, 1024));
  sub->add_option("--json", a->json, "results as JSON")->check(not_empty());
  sub->add_option("--plot", a->plot, "time and bandwidth over size, SVG")->check(not_empty());
  sub->add_option("--trace", a->trace, "timeline of the fastest at the largest size, for Perfetto")
      ->check(not_empty());
  sub->add_option("--heatmap", a->heatmap, "load of all links then, SVG")->check(not_empty());
  for (const char* picture : {"--plot", "--trace", "--heatmap"}) parallel->excludes(sub->get_option(picture));
  sub->add_flag("-q,--quiet", a->quiet, "no progress on a terminal");
  sub->callback([=] { *status = run_simulate(*a); });
}

}  // namespace tamaki::tools
