#include "algorithms/shapes/torus.hpp"

#include <algorithm>
#include <utility>

namespace tamaki {

Grid::Grid(const Topology& topology) : ports_(std::max(1, topology.ports)) {
  for (const GridDimension& d : topology.grid) {
    if (d.size == 1) continue;
    sizes_.push_back(d.size);
    wraps_.push_back(d.wraps);
  }
  strides_.resize(sizes_.size());
  for (int d = dimensions() - 1; d >= 0; --d) {
    strides_[d] = points_;
    points_ *= sizes_[d];
  }
  if (!topology.rank_at.empty()) rank_at_ = &topology.rank_at;
}

int Grid::position_of(int rank) const {
  if (rank_at_ == nullptr) return rank;
  return static_cast<int>(std::find(rank_at_->begin(), rank_at_->end(), rank) - rank_at_->begin());
}

std::string refuse_without_grid(const Topology& topology, const Problem& problem) {
  const std::string ranks = std::to_string(problem.ranks);
  if (topology.grid.empty() || topology.ranks() != problem.ranks)
    return "needs the " + ranks + " ranks to be the points of a torus or mesh, and none is known";
  std::int64_t points = 1;
  for (const GridDimension& d : topology.grid) {
    if (d.size < 1) return "the torus has a side of " + std::to_string(d.size);
    points = std::min<std::int64_t>(points * d.size, INT32_MAX);
  }
  const bool places =
      topology.rank_at.empty() || static_cast<int>(topology.rank_at.size()) == problem.ranks;
  if (points != problem.ranks || !places)
    return "the torus has " + std::to_string(points) + " points, not one for each of the " + ranks +
           " ranks";
  return {};
}

std::string refuse_without_row_major_grid(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_without_grid(topology, problem); !reason.empty()) return reason;
  for (std::size_t i = 0; i < topology.rank_at.size(); ++i)
    if (topology.rank_at[i] != static_cast<std::int32_t>(i))
      return "needs ranks numbered along the torus, the last dimension fastest, and rank " +
             std::to_string(topology.rank_at[i]) + " is at position " + std::to_string(i);
  return {};
}

std::string refuse_without_torus_plan(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_without_grid(topology, problem); !reason.empty()) return reason;
  // 2 links a dimension, and of each 4 streams at most, or `pieces`.
  constexpr std::int64_t kMostChunks = std::int64_t{1} << 30;
  if (std::int64_t{2} * std::ssize(topology.grid) * problem.ranks * std::max(4, problem.pieces) >
      kMostChunks)
    return "pieces is " + std::to_string(problem.pieces) + ", too many for " +
           std::to_string(problem.ranks) + " ranks";
  return {};
}

namespace {

bool both_ways(const Grid& grid, int dimension) { return is_ring(grid, dimension); }

/// The links of a point, those of one direction first, dealt out to the lanes in turn.
struct Links {
  std::vector<int> order;    // dimension * 2 + (way is -1)
  std::vector<int> lane_of;  // of such a link; -1: it does not exist
  int count = 0, lanes = 0;

  explicit Links(const Grid& grid) : lane_of(static_cast<std::size_t>(grid.dimensions()) * 2, -1) {
    for (int backwards : {0, 1})
      for (int d = 0; d < grid.dimensions(); ++d)
        if (backwards == 0 || both_ways(grid, d)) order.push_back(d * 2 + backwards);
    count = static_cast<int>(order.size());
    lanes = std::max(1, std::min(grid.ports(), count));
    for (int i = 0; i < count; ++i) lane_of[order[i]] = i % lanes;
  }
};

int link_in(const Grid& grid, const TorusStream& stream, int dimension) {
  return dimension * 2 + (TorusPlan::way_in(grid, stream, dimension) < 0);
}

/// Chunks that a stage sends from each rank.
std::int64_t load(const Grid& grid, const TorusStream& stream, int stage) {
  return std::int64_t{TorusPlan::width(grid, stream, stage)} * (grid.size(stream.order[stage]) - 1);
}

/// Streams to choose from: each first dimension, both directions, the dimensions cyclically up or down.
std::vector<TorusStream> candidates(const Grid& grid) {
  std::vector<TorusStream> all;
  const int dimensions = grid.dimensions();
  bool any_backwards = false;
  for (int d = 0; d < dimensions; ++d) any_backwards = any_backwards || both_ways(grid, d);
  for (int turn : {1, -1})
    for (int way : {1, -1})
      for (int first = 0; first < dimensions; ++first) {
        if ((turn < 0 && dimensions < 3) || (way < 0 && !any_backwards)) continue;
        TorusStream stream{{}, way};
        for (int i = 0; i < dimensions; ++i)
          stream.order.push_back((first + turn * i + dimensions * 2) % dimensions);
        all.push_back(std::move(stream));
      }
  return all;
}

/// A stream for each lane, cyclically from its first link on; and, where their loads differ, further
/// candidates one after the other, each the one that leaves the busiest lane, then all lanes (by their
/// squares), with least; as many of them as make the lanes' loads nearly as equal as they get.
std::vector<TorusStream> balanced_streams(const Grid& grid, const Links& links, int most) {
  const std::vector<TorusStream> all = candidates(grid);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(links.lanes), 0);
  const auto add = [&](const TorusStream& stream, std::vector<std::int64_t>* sums) {
    for (int i = 0; i < grid.dimensions(); ++i)
      (*sums)[links.lane_of[link_in(grid, stream, stream.order[i])]] += load(grid, stream, i);
  };
  std::vector<TorusStream> streams;
  const auto waste = [&] {  // load of the busiest lane over the mean
    return double(*std::max_element(loads.begin(), loads.end())) * links.lanes /
           (double(streams.size()) * (grid.points() - 1));
  };
  for (int l = 0; l < links.lanes; ++l)
    for (const TorusStream& stream : all)
      if (links.order[l] == link_in(grid, stream, stream.order[0])) {
        add(stream, &loads);
        streams.push_back(stream);
        break;
      }
  std::size_t best_count = streams.size();
  double least = waste();
  constexpr double kEnough = 1.02;
  while (static_cast<int>(streams.size()) < most && least > kEnough) {
    const TorusStream* best = nullptr;
    std::int64_t best_most = 0;
    double best_squares = 0;
    for (const TorusStream& stream : all) {
      std::vector<std::int64_t> then = loads;
      add(stream, &then);
      std::int64_t busiest = 0;
      double squares = 0;
      for (std::int64_t x : then) busiest = std::max(busiest, x), squares += double(x) * double(x);
      if (best != nullptr && (busiest > best_most || (busiest == best_most && squares >= best_squares)))
        continue;
      best = &stream, best_most = busiest, best_squares = squares;
    }
    add(*best, &loads);
    streams.push_back(*best);
    if (const double now = waste(); now < least / 1.005) least = now, best_count = streams.size();
  }
  streams.resize(best_count);
  return streams;
}

}  // namespace

int TorusPlan::way_in(const Grid& grid, const TorusStream& stream, int dimension) {
  return both_ways(grid, dimension) ? stream.way : 1;
}

int TorusPlan::width(const Grid& grid, const TorusStream& stream, int stage) {
  int width = grid.points();
  for (int i = 0; i <= stage; ++i) width /= grid.size(stream.order[i]);
  return width;
}

namespace {

/// What the lanes of a link do. Of the plain bucket: stages of different streams, so that none waits for
/// another's latency. Of the pipeline: reductions and allgathers have lanes of their own.
struct LinkLanes {
  int reduce = 1;  // lanes for reduce-scatters
  int gather = 0;  // and for allgathers; 0: the same ones
  int all() const { return reduce + gather; }
};
constexpr int kLanesOfLink = 3;

TorusPlan make_plan(const Grid& grid, TorusParts parts, int pieces) {
  TorusPlan plan;
  const int dimensions = grid.dimensions();
  if (dimensions == 0) {
    plan.streams.resize(1);
    return plan;
  }
  const Links links(grid);
  const bool both = parts == TorusParts::both;
  LinkLanes own;
  bool meet = false;  // streams of the plain bucket, on a link: not where all sides take equally long
  for (int d = 1; d < dimensions; ++d) meet = meet || grid.size(d) != grid.size(0);
  if (both && pieces > 1)
    own = {.reduce = kLanesOfLink, .gather = 1};
  else if (meet)
    own = {.reduce = std::min(dimensions, kLanesOfLink)};
  plan.lanes = links.lanes * own.all();
  // Of single blocks each stream costs as many messages as there are ranks: no more of them than lanes.
  const int most = (both ? pieces : 1) * links.lanes;
  const std::vector<TorusStream> once = balanced_streams(grid, links, most);
  const int times = !both ? pieces : pieces == 1 ? 1 : std::max(1, most / static_cast<int>(once.size()));
  for (int i = 0; i < times; ++i) plan.streams.insert(plan.streams.end(), once.begin(), once.end());

  // List scheduling of Giffler and Thompson (Operations Research 8, 1960): on the lane of the task that can
  // end first, of those that can start before that, the one of the earliest piece, so that pieces follow
  // each other through the stages, and of these the one whose stream has most to come.
  struct Next {
    int done = 0;  // tasks of the stream
    int piece = 0;
    std::int64_t ready = 0;  // in chunks sent
    std::int64_t left = 0;
    int last = -1;  // number of its task before
  };
  const int each = both ? 2 * dimensions : dimensions;
  std::vector<Next> streams(plan.streams.size());
  std::vector<std::int64_t> lane_free(static_cast<std::size_t>(plan.lanes), 0);
  for (std::size_t s = 0; s < streams.size(); ++s) {
    streams[s].piece = own.gather > 0 ? static_cast<int>(s / once.size()) : 0;
    streams[s].left = std::int64_t{grid.points() - 1} * (both ? 2 : 1);
  }
  const auto task_of = [&](std::size_t s) {
    const int i = streams[s].done;
    TorusTask task;
    task.stream = static_cast<int>(s);
    task.gather = parts == TorusParts::allgather || i >= dimensions;
    task.stage = task.gather ? each - 1 - i : i;
    task.link = link_in(grid, plan.streams[s], plan.streams[s].order[task.stage]);
    task.after = streams[s].last;
    int role = task.gather && own.gather > 0 ? own.reduce : 0;
    const auto lane_in = [&](int r) { return links.lane_of[task.link] + r * links.lanes; };
    for (int other = 1; role < own.reduce && other < own.reduce; ++other)
      if (lane_free[lane_in(other)] < lane_free[lane_in(role)]) role = other;
    task.lane = lane_in(role);
    task.channel = task.link * own.all() + role;
    return task;
  };
  const std::size_t total = plan.streams.size() * static_cast<std::size_t>(each);
  while (plan.tasks.size() < total) {
    struct Option {
      TorusTask task;
      std::int64_t start = 0, end = 0;
    };
    std::vector<Option> options;
    const Option* soonest = nullptr;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      if (streams[s].done == each) continue;
      Option option{.task = task_of(s)};
      option.start = std::max(lane_free[option.task.lane], streams[s].ready);
      // Lanes that reduce share their part of the wire.
      const int slowness = own.gather > 0 && !option.task.gather ? own.reduce : 1;
      option.end = option.start + slowness * load(grid, plan.streams[s], option.task.stage);
      options.push_back(option);
    }
    for (const Option& option : options)
      if (soonest == nullptr || option.end < soonest->end) soonest = &option;
    const Option* chosen = soonest;
    const auto urgency = [&](const Option& option) {
      const Next& next = streams[option.task.stream];
      return std::pair(-next.piece, next.left);
    };
    for (const Option& option : options)
      if (option.task.lane == soonest->task.lane && option.start < soonest->end &&
          urgency(option) > urgency(*chosen))
        chosen = &option;
    const TorusTask& best = chosen->task;
    Next& next = streams[best.stream];
    next.ready = lane_free[best.lane] = chosen->end;
    next.left -= load(grid, plan.streams[best.stream], best.stage);
    next.last = static_cast<int>(plan.tasks.size());
    ++next.done;
    plan.tasks.push_back(best);
  }
  return plan;
}

}  // namespace

TorusPlan torus_plan(const Grid& grid, TorusParts parts, int pieces) {
  // All ranks have one plan, which takes longer to find than the rest of a program to write. The programs
  // of all ranks are built one after the other for the simulator and the proof: the last plan is kept.
  thread_local std::vector<int> last_key;
  thread_local TorusPlan last;
  std::vector<int> key{static_cast<int>(parts), pieces, grid.ports()};
  for (int d = 0; d < grid.dimensions(); ++d) key.insert(key.end(), {grid.size(d), grid.wraps(d) ? 1 : 0});
  if (key != last_key) {
    last = make_plan(grid, parts, pieces);
    last_key = std::move(key);
  }
  return last;
}

}  // namespace tamaki
