#include "select/costs.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <tuple>

#include "simulate/mix.hpp"
#include "simulate/simulate.hpp"

namespace tamaki {
namespace {

constexpr int kMostSlices = 16;  // beyond that a pipeline is full either way

std::uint64_t digest(std::uint64_t key, const Placement& placement) {
  for (const Place& place : placement.ranks)
    for (const std::int32_t part : {place.host, place.slot, place.numa, place.gpu, place.nic})
      key = simulation::mix(key, static_cast<std::uint64_t>(static_cast<std::uint32_t>(part)), 7);
  return key;
}

/// Parts of the key of a candidate: two of one algorithm differ in them.
auto parameters_of(const Candidate& c) {
  return std::tuple(c.problem.lanes, c.problem.pieces, c.problem.radix);
}

const Curve* find(const std::vector<Curve>& curves, const Candidate& candidate) {
  const auto found = std::find_if(curves.begin(), curves.end(), [&](const Curve& c) {
    return c.candidate.is(candidate.algorithm, candidate.problem);
  });
  return found == curves.end() ? nullptr : &*found;
}

/// What the measured candidates take at `bytes` of what they were simulated to take: the median; 0 where
/// none was.
double correction(const std::vector<Curve>& simulated, const std::vector<Curve>& measured, double bytes) {
  std::vector<double> ratios;
  for (const Curve& seen : measured) {
    const Curve* model = find(simulated, seen.candidate);
    if (model == nullptr || !seen.covers(bytes) || model->points.empty() || !(model->at(bytes) > 0))
      continue;
    ratios.push_back(seen.at(bytes) / model->at(bytes));
  }
  if (ratios.empty()) return 0;
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

}  // namespace

std::string_view name_of(Estimate::Origin origin) {
  switch (origin) {
    case Estimate::Origin::measured:
      return "measured";
    case Estimate::Origin::corrected:
      return "corrected";
    default:
      return "simulated";
  }
}

double Curve::at(double bytes) const {
  if (points.empty()) return 0;
  if (points.size() == 1 || bytes <= points.front().bytes) return points.front().seconds;
  auto above = std::lower_bound(points.begin() + 1, points.end() - 1, bytes,
                                [](const Point& p, double n) { return p.bytes < n; });
  const Point &a = *(above - 1), &b = *above;
  const double seconds = a.seconds + (b.seconds - a.seconds) * ((bytes - a.bytes) / (b.bytes - a.bytes));
  return bytes > b.bytes ? std::max(seconds, b.seconds) : seconds;
}

std::size_t default_slot_bytes(std::int32_t most_ranks_on_a_host) {
  if (most_ranks_on_a_host <= 8) return std::size_t{128} << 10;
  if (most_ranks_on_a_host <= 16) return std::size_t{64} << 10;
  return most_ranks_on_a_host <= 32 ? std::size_t{32} << 10 : std::size_t{16} << 10;
}

std::vector<double> curve_sizes(Collective collective) {
  if (collective == Collective::barrier) return {0};
  std::vector<double> sizes;
  for (double bytes = 64; bytes <= double{64 << 20}; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

std::vector<double> sizes_beside(Collective collective, double bytes) {
  const std::vector<double> grid = curve_sizes(collective);
  std::size_t above = 0;
  while (above + 1 < grid.size() && grid[above] < bytes) ++above;
  if (above == 0 || grid[above] == bytes) return {grid[above]};
  return {grid[above - 1], grid[above]};
}

Wishes choice_wishes(const Topology& topology) {
  Wishes wishes = default_wishes(topology);
  if (topology.ranks() <= 16) std::erase_if(wishes.pieces, [](int pieces) { return pieces > 16; });
  // Each lane has its slots, at each end of each pair that talks.
  std::erase_if(wishes.lanes, [](int lanes) { return lanes > 8; });
  return wishes;
}

int slices_of(const Program& program, double bytes, std::size_t slot_bytes) {
  const bool blocks = program.collective != Collective::allreduce &&
                      program.collective != Collective::reduce &&
                      program.collective != Collective::broadcast;
  const double chunk = bytes / (static_cast<double>(program.chunks) * (blocks ? program.ranks : 1));
  const double each = static_cast<double>(slot_bytes) / std::max(1, program.max_width);
  const double slices = each > 0 ? chunk / each : 1;
  if (!(slices > 1)) return 1;
  if (slices >= kMostSlices) return kMostSlices;
  const int whole = static_cast<int>(slices);
  return whole + (slices > whole ? 1 : 0);
}

void simulate_curve(const Network& network, const Topology& topology, const std::vector<double>& sizes,
                    const CostOptions& options, Curve* curve) {
  const Candidate& candidate = curve->candidate;
  const auto give_up = [curve](std::string why) {
    if (curve->points.empty()) curve->why_not = std::move(why);
  };
  const Program first = candidate.algorithm->build(topology, candidate.problem, 0);
  std::int64_t operands = 0;
  for (const Lane& lane : first.lanes)
    for (const Block& block : lane.blocks)
      for (std::int32_t s = block.begin; s < block.end; ++s)
        operands += static_cast<std::int64_t>(block.times) *
                    (first.steps[static_cast<std::size_t>(s)].sources +
                     first.steps[static_cast<std::size_t>(s)].destinations);
  if (const std::int64_t messages = operands / 2 * first.ranks; messages > options.most_messages)
    return give_up("some " + std::to_string(messages) +
                   " messages, more than are simulated for a choice (" +
                   std::to_string(options.most_messages) + ")");
  const Result<TimedSchedule> schedule = TimedSchedule::of(network, [&](std::int32_t rank) {
    return rank == 0 ? first : candidate.algorithm->build(topology, candidate.problem, rank);
  });
  if (!schedule) return give_up(schedule.error().message);
  for (const double bytes : sizes) {
    const Result<Simulation> made = schedule->run({.bytes = bytes,
                                                   .slices = slices_of(first, bytes, options.slot_bytes),
                                                   .most_messages = options.most_messages});
    if (!made) return give_up(made.error().message);
    const auto at = std::lower_bound(curve->points.begin(), curve->points.end(), bytes,
                                     [](const Curve::Point& p, double n) { return p.bytes < n; });
    curve->points.insert(at, {bytes, made->seconds});
  }
}

Costs::Costs(Machine machine, Placement placement, Topology topology, CostOptions options)
    : machine_(std::move(machine)),
      placement_(std::move(placement)),
      topology_(std::move(topology)),
      options_(options) {
  key_ = key_of(hash_of(machine_), placement_, options_.slot_bytes);
}

std::uint64_t Costs::key_of(std::uint64_t machine_hash, const Placement& placement,
                            std::size_t slot_bytes) {
  return simulation::mix(digest(machine_hash, placement), slot_bytes, 8);
}

void Costs::set_simulated(Collective collective, std::vector<Curve> curves) {
  const std::lock_guard lock(mutex_);
  Known& known = known_[static_cast<std::size_t>(collective)];
  known.simulated = std::move(curves);
  known.listed = true;
  known.missing.clear();
}

void Costs::set_measured(Collective collective, std::vector<Curve> curves) {
  const std::lock_guard lock(mutex_);
  known_[static_cast<std::size_t>(collective)].measured = std::move(curves);
}

bool Costs::has_measured(Collective collective) {
  const std::lock_guard lock(mutex_);
  return !known_[static_cast<std::size_t>(collective)].measured.empty();
}

void Costs::list_candidates(Collective collective, const std::vector<std::string_view>& shortlist,
                            Known* known) const {
  known->listed = true;
  known->missing = curve_sizes(collective);
  const bool few = topology_.ranks() > options_.all_up_to_ranks;
  const Wishes wishes = choice_wishes(topology_);
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->collective != collective) continue;
    Curve none{.candidate = {.algorithm = algorithm,
                             .problem = {.collective = collective, .ranks = topology_.ranks()}}};
    const std::vector<Candidate> all = candidates(topology_, *algorithm, 0, wishes, &none.why_not);
    if (topology_.ranks() > options_.most_ranks)
      none.why_not =
          "too many ranks to simulate for a choice (most " + std::to_string(options_.most_ranks) + ")";
    else if (few && std::find(shortlist.begin(), shortlist.end(), algorithm->name) == shortlist.end())
      none.why_not = "not among the few that are simulated for so many ranks";
    if (!none.why_not.empty()) {
      known->simulated.push_back(std::move(none));
      continue;
    }
    for (const Candidate& candidate : all) known->simulated.push_back({.candidate = candidate});
  }
}

void Costs::simulate_at(const std::vector<double>& sizes, Known* known) const {
  if (sizes.empty()) return;
  const Result<std::unique_ptr<Network>> network = Network::of(machine_, placement_);
  for (Curve& curve : known->simulated) {
    if (!curve.why_not.empty()) continue;
    if (network)
      simulate_curve(**network, topology_, sizes, options_, &curve);
    else
      curve.why_not = network.error().message;
  }
  std::erase_if(known->missing,
                [&](double size) { return std::find(sizes.begin(), sizes.end(), size) != sizes.end(); });
}

std::vector<Curve> Costs::unknown(Collective collective) {
  const std::lock_guard lock(mutex_);
  std::vector<Curve> found;
  for (const Curve& curve : known_[static_cast<std::size_t>(collective)].simulated)
    if (curve.points.empty()) found.push_back(curve);
  return found;
}

std::vector<Estimate> Costs::estimates(Collective collective, double bytes,
                                       const std::vector<std::string_view>& shortlist) {
  const std::lock_guard lock(mutex_);
  Known& known = known_[static_cast<std::size_t>(collective)];
  if (!known.listed) list_candidates(collective, shortlist, &known);
  std::vector<double> sizes = sizes_beside(collective, bytes);
  std::erase_if(sizes, [&](double size) {
    return std::find(known.missing.begin(), known.missing.end(), size) == known.missing.end();
  });
  simulate_at(sizes, &known);
  const std::vector<Curve>&simulated = known.simulated, &measured = known.measured;
  const double factor = correction(simulated, measured, bytes);
  std::vector<Estimate> all;
  for (const Curve& seen : measured)
    if (seen.covers(bytes)) all.push_back({seen.candidate, seen.at(bytes), Estimate::Origin::measured});
  for (const Curve& model : simulated) {
    if (model.points.empty()) continue;
    if (const Curve* seen = find(measured, model.candidate); seen != nullptr && seen->covers(bytes))
      continue;
    all.push_back({model.candidate, model.at(bytes) * (factor > 0 ? factor : 1),
                   factor > 0 ? Estimate::Origin::corrected : Estimate::Origin::simulated});
  }
  std::stable_sort(all.begin(), all.end(), [](const Estimate& a, const Estimate& b) {
    return std::tuple(a.seconds, parameters_of(a.candidate)) <
           std::tuple(b.seconds, parameters_of(b.candidate));
  });
  return all;
}

}  // namespace tamaki
