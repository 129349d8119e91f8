#include "simulate/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "simulate/engine.hpp"

namespace tamaki {

TimedSchedule::TimedSchedule(const Network& network, AlikeRanks ranks)
    : network_(&network),
      ranks_(ranks),
      compiled_(std::make_unique<simulation::Compiled>()),
      cells_(std::make_unique<simulation::Cells>()) {}
TimedSchedule::TimedSchedule(TimedSchedule&&) noexcept = default;
TimedSchedule& TimedSchedule::operator=(TimedSchedule&&) noexcept = default;
TimedSchedule::~TimedSchedule() = default;

Result<TimedSchedule> TimedSchedule::of(const Network& network, const ProgramSource& programs,
                                        AlikeRanks ranks) {
  TimedSchedule made(network, ranks);
  Result<simulation::Compiled> compiled = simulation::compile(network, programs);
  if (!compiled) return pass(std::move(compiled));
  *made.compiled_ = std::move(*compiled);
  Result<simulation::Cells> cells = simulation::make_cells(network, *made.compiled_, ranks);
  if (!cells) return pass(std::move(cells));
  *made.cells_ = std::move(*cells);
  return made;
}

std::int64_t TimedSchedule::messages() const { return compiled_->messages; }
Collective TimedSchedule::collective() const { return compiled_->collective; }

Result<Simulation> TimedSchedule::run(const SimulationOptions& options) const {
  if (!(options.bytes >= 0) || std::isinf(options.bytes))
    return fail(Code::invalid_argument, fmt::format("bytes is {}, must be 0 or more", options.bytes));
  if (options.slices < 1 || options.slices > 1'000'000)
    return fail(Code::invalid_argument, fmt::format("slices is {}, must be 1..1000000", options.slices));
  if (options.room != 0 && options.room < 2)
    return fail(Code::invalid_argument,
                fmt::format("room is {}, must be 0 (no limit) or 2 and more", options.room));
  if (options.spans != nullptr && ranks_ != AlikeRanks::apart)
    return fail(Code::invalid_argument, "a timeline needs a schedule whose ranks are kept apart");
  for (const double tick_s : {1e-15, 1e-12, 1e-9}) {
    simulation::Engine engine(*network_, *compiled_, *cells_, options, tick_s);
    if (options.spans != nullptr) options.spans->clear();
    Result<Simulation> made = engine.run();
    if (!engine.overflowed()) return made;
  }
  return fail(Code::invalid_argument,
              fmt::format("{} bytes take longer than can be counted (100 years)", options.bytes));
}

Result<Simulation> simulate(const Network& network, const ProgramSource& programs,
                            const SimulationOptions& options, AlikeRanks ranks) {
  const Result<TimedSchedule> schedule = TimedSchedule::of(network, programs, ranks);
  if (!schedule) return tl::unexpected<Error>(schedule.error());
  return schedule->run(options);
}

double algorithm_bandwidth(double bytes, double seconds) { return seconds > 0 ? bytes / seconds : 0; }

double bus_bandwidth(Collective collective, std::int32_t ranks, double bytes, double seconds) {
  const double share = ranks > 0 ? (ranks - 1.0) / ranks : 0;
  double factor = 1;
  switch (collective) {
    case Collective::allreduce:
      factor = 2 * share;
      break;
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
    case Collective::gather:
    case Collective::scatter:
      factor = share;
      break;
    default:
      break;
  }
  return algorithm_bandwidth(bytes, seconds) * factor;
}

double lower_bound_s(const Network& network, Collective collective, double bytes) {
  const std::int32_t ranks = network.ranks();
  if (ranks < 2) return 0;
  std::vector<std::int32_t> on_host(static_cast<std::size_t>(network.machine().hosts));
  for (const Place& place : network.placement().ranks) ++on_host[static_cast<std::size_t>(place.host)];
  double hosts = 0;
  for (const std::int32_t count : on_host) hosts += count > 0;
  if (hosts < 2) return 0;  // links within a host have no bound here
  double bound = 0;
  for (std::size_t host = 0; host < on_host.size(); ++host) {
    if (on_host[host] == 0) continue;
    const double share = on_host[host] / static_cast<double>(ranks);
    double out = 0;  // bytes that must leave the host, or enter it
    switch (collective) {
      case Collective::allreduce:
        out = 2 * bytes * (hosts - 1) / hosts;
        break;
      case Collective::allgather:
      case Collective::reduce_scatter:
        out = bytes * (1 - share);
        break;
      case Collective::alltoall:
        out = bytes * on_host[host] * (1 - share);
        break;
      case Collective::broadcast:
      case Collective::reduce:
        out = bytes;
        break;
      case Collective::gather:
      case Collective::scatter: {
        const Place& root = network.placement().ranks[0];
        out = root.host == static_cast<std::int32_t>(host) ? bytes * (1 - share) : bytes * share;
        break;
      }
      default:
        break;
    }
    bound = std::max(bound, out / network.host_rate(static_cast<std::int32_t>(host)));
  }
  return std::max(bound, network.model().startup_s);
}

}  // namespace tamaki
