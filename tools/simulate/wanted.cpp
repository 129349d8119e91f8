// What a sweep is over, as the command line says it: machine and ranks, sizes, threads.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>

#include "base/options.hpp"
#include "command.hpp"
#include "problem_set.hpp"
#include "simulate/sweep.hpp"
#include "topology/recognize.hpp"

namespace tamaki::tools {
namespace {

constexpr std::size_t kMostSizes = 1000;

}  // namespace

Status lay_out(const std::string& cluster, int ranks, const std::string& order, std::uint64_t seed,
               SweepOptions* options) {
  Result<Machine> machine = machine_from(cluster);
  if (!machine) return fail(machine.error().code, "--cluster: " + machine.error().message);
  options->machine = std::move(*machine);
  const std::int64_t all = ranks > 0 ? ranks : options->machine.slots();
  if (all > kMostDescribed)
    return fail(
        Code::invalid_argument,
        fmt::format(
            "--cluster {}: {} ranks are more than algorithms are built for ({}); give a shape or -n",
            cluster, all, kMostDescribed));
  const auto by = order == "host"    ? RankOrder::by_host
                  : order == "first" ? RankOrder::first_dimension_fastest
                                     : RankOrder::by_slot;
  Result<Placement> placement = place(options->machine, static_cast<std::int32_t>(all), by);
  if (!placement)
    return fail(placement.error().code, fmt::format("{}: {}", order == "first" ? "--order first" : "-n",
                                                    placement.error().message));
  options->placement = order == "random" ? shuffled(std::move(*placement), seed) : std::move(*placement);
  recognize_ranks(options);
  return {};
}

void recognize_ranks(SweepOptions* options) {
  Recognized recognized = recognize(options->machine, options->placement);
  options->topology = std::move(recognized.topology);
  options->structure = std::move(recognized.what);
}

int allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

Result<std::vector<double>> parse_sizes(const std::string& text, const char* option) {
  std::vector<double> sizes;
  for (const std::string& part : split_list(text)) {
    const auto wrong = [&](const std::string& why) {
      return fail(Code::invalid_argument, fmt::format("{}: \"{}\": {}", option, part, why));
    };
    std::string from = part, to = part;
    std::uint64_t factor = 2;
    if (const auto dots = part.find(".."); dots != std::string::npos) {
      from = part.substr(0, dots);
      to = part.substr(dots + 2);
      if (const auto star = to.find('*'); star != std::string::npos) {
        const auto read = std::from_chars(to.data() + star + 1, to.data() + to.size(), factor);
        if (read.ec != std::errc() || read.ptr != to.data() + to.size() || factor < 2 || factor > 1'000'000)
          return wrong("the factor after * must be a whole number in 2..1000000");
        to.resize(star);
      }
    }
    const Result<std::uint64_t> low = parse_bytes(from), high = parse_bytes(to);
    if (!low) return wrong(low.error().message);
    if (!high) return wrong(high.error().message);
    if (*low > *high) return wrong("the end is before the beginning");
    if (*low == 0 && *high > 0) return wrong("a range must begin at 1 or more");
    if (*high > std::uint64_t{1} << 50) return wrong("sizes must be in 0..1P");
    for (std::uint64_t size = *low; size <= *high && sizes.size() <= kMostSizes; size *= factor) {
      sizes.push_back(static_cast<double>(size));
      if (size == 0) break;
    }
    if (from != to && sizes.back() < static_cast<double>(*high))
      sizes.push_back(static_cast<double>(*high));
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.empty())
    return fail(Code::invalid_argument, fmt::format("{}: \"{}\" has no size", option, text));
  if (sizes.size() > kMostSizes)
    return fail(Code::invalid_argument,
                fmt::format("{}: \"{}\" has more than {} sizes", option, text, kMostSizes));
  return sizes;
}

}  // namespace tamaki::tools
