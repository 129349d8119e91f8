#include "algorithms/shapes/swing.hpp"

#include <algorithm>

#include "algorithms/shapes/arguments.hpp"

namespace tamaki {
namespace {

/// rho(step), modulo `m`.
int offset(int step, int m) {
  std::int64_t power = 1;  // (-2)^(step + 1)
  for (int i = 0; i <= step; ++i) power *= -2;
  return wrap(static_cast<int>((1 - power) / 3 % m), m);
}

}  // namespace

SwingRing::SwingRing(int size) : size_(size), even_(size - size % 2) {
  steps_ = ceil_log(even_, 2);
  if (size_ % 2 == 0)
    while (size_ % (2 << twos_) == 0) ++twos_;
  const int modulus = 1 << twos_;
  while (size_ % 2 == 0 && third_ * 3 % modulus != 1 % modulus) third_ += 2;
  for (int bit = 1; bit < twos_; ++bit) digits_.push_back(2);
  digits_.push_back(size_ >> std::max(0, twos_ - 1));  // members of a representative
  if (power_of_two()) return;
  reached_.assign(static_cast<std::size_t>(even_), -2);
  reached_[0] = -1;
  std::vector<int> holders = {0};
  for (int k = 0; k < steps_; ++k) {
    const std::size_t before = holders.size();
    for (std::size_t i = 0; i < before; ++i)
      if (const int to = peer(holders[i], steps_ - 1 - k); reached_[to] == -2) {
        reached_[to] = k;
        holders.push_back(to);
      }
  }
  member_at_.resize(static_cast<std::size_t>(size_));
  for (int x = 0; x < size_; ++x) member_at_[label_of(x)] = x;
}

/// Peers of steps s and later have the same representative modulo 2^(s+1): a member itself if it is even,
/// else what lies 1/3 (modulo a power of two, to which all rho(s) come ever nearer) before it. Members of a
/// representative follow each other, even ones first.
int SwingRing::label_of(int member) const {
  const int rest = digits_.back(), modulus = 1 << twos_;
  if (size_ % 2 != 0) return member;
  const int representative = wrap(member % 2 == 0 ? member : member - third_, modulus);
  int label = 0;
  for (int bit = 1; bit < twos_; ++bit) label = label * 2 + (representative >> bit & 1);
  return label * rest + member % 2 * (rest / 2) + member / modulus;
}

int SwingRing::member_of(int label) const {
  if (size_ % 2 != 0) return label;
  const int half = digits_.back() / 2, modulus = 1 << twos_;
  const int of_representative = label / (2 * half), odd = label % (2 * half) / half;
  int representative = odd * third_;
  for (int bit = 1; bit < twos_; ++bit)
    representative += (of_representative >> (twos_ - 1 - bit) & 1) << bit;
  return label % half * modulus + representative % modulus;
}

int SwingRing::peer(int member, int step) const {
  const int rho = offset(step, even_);
  return wrap(member % 2 == 0 ? member + rho : member - rho, even_);
}

std::vector<int> SwingRing::peers(int member, int k) const {
  std::vector<int> found;
  const int last = size_ - 1;
  if (even_ < size_ && member == last) {
    for (int x = 0; k == 0 && x < last; ++x) found.push_back(x);
    return found;
  }
  found.push_back(peer(member, steps_ - 1 - k));
  if (even_ < size_ && k == 0) found.push_back(last);
  return found;
}

int SwingRing::step_of(int block, int member) const {
  if (block == member) return -1;
  if (block >= even_ || member >= even_) return 0;
  return reached_[block % 2 == 0 ? wrap(member - block, even_) : wrap(block - member, even_)];
}

bool SwingRing::gets(int block, int member, int peer_, int k) const {
  if (step_of(block, member) != k) return false;
  if (block >= even_ || member >= even_ || peer_ >= even_) return block == peer_;  // straight from its root
  return true;
}

SwingGrid::SwingGrid(std::vector<int> sizes, int first, Side side) : side_(side) {
  const int dimensions = static_cast<int>(sizes.size());
  for (int size : sizes) rings_.emplace_back(size);
  strides_.resize(sizes.size());
  for (int d = dimensions - 1; d >= 0; --d) {
    strides_[d] = points_;
    points_ *= sizes[d];
  }
  int most = 0;
  for (const SwingRing& ring : rings_)
    most = std::max({most, ring.steps(), static_cast<int>(ring.digits().size())});
  for (int number = 0; number < most; ++number)
    for (int i = 0; i < dimensions; ++i) {
      const int d = (first + i) % dimensions;
      if (number < rings_[d].steps()) steps_.push_back({d, number});
      if (number < static_cast<int>(rings_[d].digits().size()))
        digits_.push_back({d, rings_[d].digits()[number]});
    }
}

bool SwingGrid::powers_of_two() const {
  return std::all_of(rings_.begin(), rings_.end(),
                     [](const SwingRing& ring) { return ring.power_of_two(); });
}

int SwingGrid::member(int position, int d) const {
  const int size = rings_[d].size(), x = position / strides_[d] % size;
  return side_ == Side::plain ? x : (size - x) % size;
}

int SwingGrid::position(int position, int d, int member) const {
  const int size = rings_[d].size(), x = side_ == Side::plain ? member : (size - member) % size;
  return position + (x - position / strides_[d] % size) * strides_[d];
}

int SwingGrid::block_of(int position) const {
  std::vector<int> label, weight;  // what is left of each dimension's label, and of what size
  for (int d = 0; d < static_cast<int>(rings_.size()); ++d) {
    label.push_back(rings_[d].label_of(member(position, d)));
    weight.push_back(rings_[d].size());
  }
  int block = 0;
  for (const Digit& digit : digits_) {
    weight[digit.dimension] /= digit.size;
    block = block * digit.size + label[digit.dimension] / weight[digit.dimension];
    label[digit.dimension] %= weight[digit.dimension];
  }
  return block;
}

int SwingGrid::position_of(int block) const {
  std::vector<int> label(rings_.size(), 0);
  int weight = points_;
  for (const Digit& digit : digits_) {
    weight /= digit.size;
    label[digit.dimension] = label[digit.dimension] * digit.size + block / weight % digit.size;
  }
  int found = 0;
  for (int d = 0; d < static_cast<int>(rings_.size()); ++d)
    found = position(found, d, rings_[d].member_of(label[d]));
  return found;
}

void SwingGrid::runs(const std::vector<const Set*>& sets, std::vector<BlockRun>* found) const {
  const int dimensions = static_cast<int>(rings_.size());
  std::vector<int> begin(static_cast<std::size_t>(dimensions), 0), size;
  for (const SwingRing& ring : rings_) size.push_back(ring.size());
  const auto descend = [&](const auto& self, std::size_t digit, int block, int count) -> void {
    bool full = true;
    for (int d = 0; d < dimensions; ++d) {
      const int held = sets[d]->count(begin[d], size[d]);
      if (held == 0) return;
      full = full && held == size[d];
    }
    if (full) {
      if (!found->empty() && found->back().begin + found->back().count == block)
        found->back().count += count;
      else
        found->push_back({block, count});
      return;
    }
    const Digit& split = digits_[digit];
    const int before = begin[split.dimension], whole = size[split.dimension];
    size[split.dimension] = whole / split.size;
    for (int i = 0; i < split.size; ++i) {
      begin[split.dimension] = before + i * size[split.dimension];
      self(self, digit + 1, block + i * (count / split.size), count / split.size);
    }
    begin[split.dimension] = before, size[split.dimension] = whole;
  };
  descend(descend, 0, 0, points_);
}

std::vector<std::vector<SwingExchange>> SwingGrid::steps_at(int here) const {
  const int dimensions = static_cast<int>(rings_.size());
  const auto set_of = [&](int d, const auto& holds) {
    Set set;
    set.below.push_back(0);
    for (int label = 0; label < rings_[d].size(); ++label)
      set.below.push_back(set.below.back() + holds(label));
    return set;
  };
  // Blocks that the rank has, in each dimension, before step k of the allgather; k from its end on.
  std::vector<Set> held;
  std::vector<int> own;
  std::vector<std::vector<int>> got(rings_.size());  // SwingRing::step_of, by labels
  for (int d = 0; d < dimensions; ++d) {
    own.push_back(member(here, d));
    held.push_back({0, rings_[d].size(), {}});
    if (rings_[d].power_of_two()) continue;
    for (int label = 0; label < rings_[d].size(); ++label)
      got[d].push_back(rings_[d].step_of(rings_[d].member_at(label), own[d]));
  }
  std::vector<std::vector<SwingExchange>> all;
  for (const Step& step : steps_) {
    const int d = step.dimension, k = rings_[d].steps() - 1 - step.number;
    const SwingRing& ring = rings_[d];
    std::vector<SwingExchange> exchanges;
    Set kept;
    for (int other : ring.peers(own[d], k)) {
      SwingExchange exchange{position(here, d, other), {}, {}};
      Set gets, gives;
      if (ring.power_of_two()) {  // halves of what is left
        const int half = (held[d].end - held[d].begin) / 2, middle = held[d].begin + half;
        const bool upper = ring.label_of(own[d]) >= middle;
        kept = upper ? Set{middle, held[d].end, {}} : Set{held[d].begin, middle, {}};
        gives = kept;
        gets = upper ? Set{held[d].begin, middle, {}} : Set{middle, held[d].end, {}};
      } else {
        gets = set_of(d, [&](int label) {
          return got[d][label] == k && ring.gets(ring.member_at(label), own[d], other, k);
        });
        gives = set_of(d, [&](int label) { return ring.gets(ring.member_at(label), other, own[d], k); });
      }
      std::vector<const Set*> sets;
      for (const Set& set : held) sets.push_back(&set);
      sets[d] = &gets;
      runs(sets, &exchange.given);
      sets[d] = &gives;
      runs(sets, &exchange.taken);
      if (!exchange.given.empty() || !exchange.taken.empty()) exchanges.push_back(std::move(exchange));
    }
    held[d] = ring.power_of_two() ? kept : set_of(d, [&](int label) { return got[d][label] < k; });
    all.push_back(std::move(exchanges));
  }
  return all;
}

namespace {

using Steps = std::vector<std::vector<SwingExchange>>;

/// A run out, a run in, in turn: all runs of one direction first would need as many slots.
template <class Send, class Receive>
void in_turn(const std::vector<BlockRun>& first, const std::vector<BlockRun>& second, const Send& send,
             const Receive& receive) {
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) send(first[i]);
    if (i < second.size()) receive(second[i], i + 1 == second.size());
  }
}

/// The reduce-scatter of blocks that lie in `held(step, block)` and are kept in `kept(block)`.
template <class Held, class Kept, class Size>
void reduce_scatter(Builder::LaneBuilder& lane, const Steps& steps, const RankAt& rank_at, const Held& held,
                    const Kept& kept, const Size& size_of) {
  const SwingExchange* last = nullptr;  // that completes the rank's own block
  for (const auto& exchanges : steps)
    for (const SwingExchange& exchange : exchanges)
      if (!exchange.taken.empty()) last = &exchange;
  for (std::size_t s = 0; s < steps.size(); ++s)
    for (const SwingExchange& exchange : steps[s]) {
      const int peer = rank_at(exchange.peer);
      in_turn(
          exchange.given, exchange.taken,
          [&](const BlockRun& run) {
            lane.send(held(s, run.begin), to(peer), {.width = run.count, .size_of = size_of(run.begin)});
          },
          [&](const BlockRun& run, bool is_last) {
            lane.step({held(s, run.begin), from(peer)}, {kept(run.begin)},
                      {.width = run.count,
                       .finish = &exchange == last && is_last,
                       .size_of = size_of(run.begin)});
          });
    }
}

/// The allgather of blocks in output chunks from `begin` on.
void allgather(Builder::LaneBuilder& lane, const Steps& steps, const RankAt& rank_at, int begin) {
  for (std::size_t s = steps.size(); s-- > 0;)
    for (const SwingExchange& exchange : steps[s]) {
      const int peer = rank_at(exchange.peer);
      in_turn(
          exchange.taken, exchange.given,
          [&](const BlockRun& run) {
            const Operand place = out(begin + run.begin);
            lane.send(place, to(peer, place), {.width = run.count});
          },
          [&](const BlockRun& run, bool) {
            lane.recv(from(peer), out(begin + run.begin), {.width = run.count});
          });
    }
}

/// Copies all blocks from input chunks `begin` on, no more in a step than messages have.
void copy_input(Builder::LaneBuilder& lane, const SwingGrid& grid, int begin, Operand (*place)(int, int)) {
  for (int c = 0; c < grid.points(); c += grid.widest())
    lane.copy(in(begin + c), place(begin + c, 0), {.width = std::min(grid.widest(), grid.points() - c)});
}

}  // namespace

void swing_allreduce(Builder::LaneBuilder& lane, const SwingGrid& grid, int here, int begin,
                     const RankAt& rank_at) {
  const Steps steps = grid.steps_at(here);
  const bool raw = grid.powers_of_two();  // whatever a rank keeps after the first step has been added to
  if (!raw) copy_input(lane, grid, begin, out);
  reduce_scatter(
      lane, steps, rank_at,
      [&](std::size_t s, int block) { return raw && s == 0 ? in(begin + block) : out(begin + block); },
      [&](int block) { return out(begin + block); }, [](int) { return Operand{}; });
  allgather(lane, steps, rank_at, begin);
}

void swing_allgather(Builder::LaneBuilder& lane, const SwingGrid& grid, int here, const RankAt& rank_at) {
  const int rank = rank_at(here), own = grid.block_of(here), other = rank_at(grid.position_of(rank));
  if (own == rank) {
    lane.copy(in(0), out(rank));
  } else {
    lane.send(in(0), to(other, out(rank)));
    lane.recv(from(own), out(own));
  }
  allgather(lane, grid.steps_at(here), rank_at, 0);
}

void swing_reduce_scatter(Builder::LaneBuilder& lane, const SwingGrid& grid, int here,
                          const RankAt& rank_at) {
  const int rank = rank_at(here), own = grid.block_of(here), other = rank_at(grid.position_of(rank));
  const bool raw = grid.powers_of_two();
  if (!raw) copy_input(lane, grid, 0, tmp);
  reduce_scatter(
      lane, grid.steps_at(here), rank_at,
      [&](std::size_t s, int block) { return raw && s == 0 ? in(block) : tmp(block); },
      [&](int block) { return tmp(block); }, [&](int block) { return in(block); });
  if (own == rank) {
    lane.copy(tmp(own), out(0), {.size_of = in(own)});
  } else {
    lane.send(tmp(own), to(own, out(0)), {.size_of = in(own)});
    lane.recv(from(other), out(0));
  }
}

bool swing_moves_blocks(const SwingGrid& grid, const RankAt& rank_at) {
  for (int position = 0; position < grid.points(); ++position)
    if (grid.block_of(position) != rank_at(position)) return true;
  return false;
}

}  // namespace tamaki
