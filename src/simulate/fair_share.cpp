#include "simulate/fair_share.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace tamaki::simulation {
namespace {

// Levels that differ by less are one level: what the order of sums leaves between equals.
constexpr double kSame = 1e-12;
// A link is full, a flow faster than another, beyond this.
constexpr double kClear = 1e-10;
// Levels found by looking at all links before a heap is built. Synchronous schedules have one or two.
constexpr int kScans = 6;
// Rounds of widening S before all flows are taken.
constexpr int kRounds = 16;

}  // namespace

std::int32_t FairShare::add_link(double capacity) {
  capacity_.push_back(capacity);
  members_.emplace_back();
  users_.emplace_back();
  share_of_link_.push_back(-1);
  link_stamp_.push_back(0);
  return static_cast<std::int32_t>(capacity_.size()) - 1;
}

std::int32_t FairShare::add_group(std::span<const std::int32_t> links,
                                  std::span<const std::int32_t> times) {
  Group group;
  group.first = static_cast<std::uint32_t>(route_.size());
  group.hops = static_cast<std::int32_t>(links.size());
  route_.insert(route_.end(), links.begin(), links.end());
  times_.insert(times_.end(), times.begin(), times.end());
  times_.resize(route_.size(), 1);
  position_.resize(route_.size());
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t slot = group.first; slot < route_.size(); ++slot) {
    const double rate = capacity_[static_cast<std::size_t>(route_[slot])] / times_[slot];
    if (rate < least) least = rate, group.narrowest = route_[slot], group.alone_rate = rate;
  }
  groups_.push_back(group);
  rate_.push_back(0);
  old_rate_.push_back(0);
  held_.push_back(0);
  return static_cast<std::int32_t>(groups_.size()) - 1;
}

bool FairShare::enter_alone(std::int32_t group) {
  for (const std::int32_t link : links(group)) {
    const Users& users = users_[static_cast<std::size_t>(link)];
    if ((users.alone >= 0 && users.alone != group) || users.listed > 0) return false;
  }
  for (const std::int32_t link : links(group)) users_[static_cast<std::size_t>(link)].alone = group;
  return groups_[static_cast<std::size_t>(group)].alone = true;
}

void FairShare::leave_alone(std::int32_t group) {
  for (const std::int32_t link : links(group)) users_[static_cast<std::size_t>(link)].alone = -1;
  groups_[static_cast<std::size_t>(group)].alone = false;
}

/// Puts a group on the lists of its links, and those that were alone there.
void FairShare::admit(std::int32_t group) {
  for (const std::int32_t link : links(group)) {
    const std::int32_t other = users_[static_cast<std::size_t>(link)].alone;
    if (other < 0) continue;
    leave_alone(other);
    place(other);
    groups_[static_cast<std::size_t>(other)].bottleneck =
        groups_[static_cast<std::size_t>(other)].narrowest;
  }
  place(group);
}

void FairShare::place(std::int32_t group) {
  const Group& g = groups_[static_cast<std::size_t>(group)];
  for (std::uint32_t slot = g.first; slot < g.first + static_cast<std::uint32_t>(g.hops); ++slot) {
    auto& list = members_[static_cast<std::size_t>(route_[slot])];
    position_[slot] = static_cast<std::uint32_t>(list.size());
    list.push_back({group, slot, times_[slot]});
    ++users_[static_cast<std::size_t>(route_[slot])].listed;
  }
}

void FairShare::remove(std::int32_t group) {
  Group& g = groups_[static_cast<std::size_t>(group)];
  for (std::uint32_t slot = g.first; slot < g.first + static_cast<std::uint32_t>(g.hops); ++slot) {
    auto& list = members_[static_cast<std::size_t>(route_[slot])];
    const Member last = list.back();
    list[position_[slot]] = last;
    position_[last.slot] = position_[slot];
    list.pop_back();
    --users_[static_cast<std::size_t>(route_[slot])].listed;
  }
  g.bottleneck = -1;
}

void FairShare::take_in(std::int32_t group) {
  Group& g = groups_[static_cast<std::size_t>(group)];
  if (g.in_set == stamp_ || g.placed == 0 || g.alone) return;
  g.in_set = stamp_;
  old_rate_[static_cast<std::size_t>(group)] = rate_[static_cast<std::size_t>(group)];
  set_.push_back(group);
}

void FairShare::take_in_held_by(std::int32_t link) {
  for (const Member& member : members_[static_cast<std::size_t>(link)])
    if (groups_[static_cast<std::size_t>(member.group)].bottleneck == link) take_in(member.group);
}

std::span<const std::int32_t> FairShare::solve() {
  changed_.clear();
  set_.clear();
  ++stamp_;
  const auto alone_again = [&](std::int32_t group) {
    const Group& g = groups_[static_cast<std::size_t>(group)];
    double& rate = rate_[static_cast<std::size_t>(group)];
    const double now = g.alone_rate / g.placed;
    if (std::abs(now - rate) > kSame * rate) changed_.push_back(group);
    rate = now;
  };
  // First all that leave, so that those who come find room.
  comers_.clear();
  shared_.clear();
  for (const std::int32_t group : dirty_) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    g.marked = false;
    if (g.flows == g.placed) continue;
    if (g.flows > 0) {
      comers_.push_back(group);
      continue;
    }
    if (g.alone) {
      leave_alone(group);
    } else {
      remove(group);
      shared_.push_back(group);
    }
    g.placed = 0;
  }
  dirty_.clear();
  for (const std::int32_t group : comers_)
    if (groups_[static_cast<std::size_t>(group)].placed == 0 && !enter_alone(group)) admit(group);
  for (const std::int32_t group : comers_) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    const bool fresh = std::exchange(g.placed, g.flows) == 0;
    if (g.alone) {
      alone_again(group);
    } else {
      if (fresh) rate_[static_cast<std::size_t>(group)] = 0;
      shared_.push_back(group);
    }
  }
  for (const std::int32_t group : shared_) {
    take_in(group);
    for (const std::int32_t link : links(group)) take_in_held_by(link);
  }
  if (set_.empty()) return changed_;
  for (int round = 0;; ++round) {
    gather_shares();
    fill();
    if (!take_in_wronged()) break;
    if (round == kRounds)
      for (std::size_t g = 0; g < groups_.size(); ++g) take_in(static_cast<std::int32_t>(g));
  }
  for (const std::int32_t group : set_) {
    const double before = old_rate_[static_cast<std::size_t>(group)];
    double& now = rate_[static_cast<std::size_t>(group)];
    if (std::abs(now - before) > kSame * before)
      changed_.push_back(group);
    else
      now = before;
  }
  return changed_;
}

void FairShare::gather_shares() {
  ++fill_stamp_;
  shares_.clear();
  filled_ += static_cast<std::int64_t>(set_.size());
  for (const std::int32_t group : set_) {
    const Group& g = groups_[static_cast<std::size_t>(group)];
    held_[static_cast<std::size_t>(group)] = 0;
    for (std::uint32_t slot = g.first; slot < g.first + static_cast<std::uint32_t>(g.hops); ++slot) {
      const std::int32_t link = route_[slot];
      const auto l = static_cast<std::size_t>(link);
      if (link_stamp_[l] != fill_stamp_) {
        link_stamp_[l] = fill_stamp_;
        share_of_link_[l] = static_cast<std::int32_t>(shares_.size());
        shares_.push_back({.link = link, .flows = 0, .rest = capacity_[l]});
      }
      shares_[static_cast<std::size_t>(share_of_link_[l])].flows += std::int64_t{g.placed} * times_[slot];
    }
  }
  for (Share& share : shares_)
    for (const Member& member : members_[static_cast<std::size_t>(share.link)]) {
      const Group& g = groups_[static_cast<std::size_t>(member.group)];
      if (g.in_set != stamp_)
        share.rest -= g.placed * member.times * rate_[static_cast<std::size_t>(member.group)];
    }
}

void FairShare::hold_back(std::size_t share, double level) {
  const std::int32_t link = shares_[share].link;
  for (const Member& member : members_[static_cast<std::size_t>(link)]) {
    const auto index = static_cast<std::size_t>(member.group);
    Group& g = groups_[index];
    if (g.in_set != stamp_ || held_[index] != 0) continue;
    held_[index] = 1;
    rate_[index] = level;
    g.bottleneck = link;
    for (std::uint32_t slot = g.first; slot < g.first + static_cast<std::uint32_t>(g.hops); ++slot) {
      const auto other = static_cast<std::size_t>(route_[slot]);
      Share& s = shares_[static_cast<std::size_t>(share_of_link_[other])];
      const std::int64_t count = std::int64_t{g.placed} * times_[slot];
      s.flows -= count;
      s.rest -= static_cast<double>(count) * level;
    }
  }
}

void FairShare::fill() {
  std::vector<std::int32_t> live(shares_.size());
  for (std::size_t i = 0; i < live.size(); ++i) live[i] = static_cast<std::int32_t>(i);
  for (int scan = 0; scan < kScans && !live.empty(); ++scan) {
    double level = std::numeric_limits<double>::infinity();
    std::size_t kept = 0;
    for (const std::int32_t i : live) {
      const Share& s = shares_[static_cast<std::size_t>(i)];
      if (s.flows == 0) continue;
      level = std::min(level, s.level());
      live[kept++] = i;
    }
    live.resize(kept);
    const double limit = level * (1 + kSame);
    for (const std::int32_t i : live) {
      const Share& s = shares_[static_cast<std::size_t>(i)];
      if (s.flows > 0 && s.level() <= limit) hold_back(static_cast<std::size_t>(i), level);
    }
  }
  fill_by_heap(&live);
}

void FairShare::fill_by_heap(std::vector<std::int32_t>* live) {
  // A link's level only grows while others' flows are held back: what lies in the heap is a lower bound.
  std::vector<std::pair<double, std::int32_t>> heap;
  for (const std::int32_t i : *live)
    if (shares_[static_cast<std::size_t>(i)].flows > 0)
      heap.emplace_back(shares_[static_cast<std::size_t>(i)].level(), i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  double level = 0;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    auto& [found, i] = heap.back();
    const Share& s = shares_[static_cast<std::size_t>(i)];
    if (s.flows == 0) {
      heap.pop_back();
      continue;
    }
    const double now = s.level();
    if (now > found * (1 + kSame)) {
      found = now;
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
      continue;
    }
    if (now > level * (1 + kSame)) level = now;
    hold_back(static_cast<std::size_t>(i), level);
    heap.pop_back();
  }
}

bool FairShare::take_in_wronged() {
  const std::size_t before = set_.size();
  for (const Share& share : shares_) {
    const auto& list = members_[static_cast<std::size_t>(share.link)];
    double load = 0, fastest = 0, held_at = std::numeric_limits<double>::infinity();
    bool outsiders = false;
    for (const Member& member : list) {
      const Group& g = groups_[static_cast<std::size_t>(member.group)];
      const double rate = rate_[static_cast<std::size_t>(member.group)];
      load += g.placed * member.times * rate;
      if (g.in_set != stamp_) {
        outsiders = true;
        continue;
      }
      fastest = std::max(fastest, rate);
      if (g.bottleneck == share.link) held_at = std::min(held_at, rate);
    }
    if (!outsiders) continue;
    const bool full = load >= capacity_[static_cast<std::size_t>(share.link)] * (1 - kClear);
    for (const Member& member : list) {
      const Group& g = groups_[static_cast<std::size_t>(member.group)];
      if (g.in_set == stamp_) continue;
      const double rate = rate_[static_cast<std::size_t>(member.group)];
      const bool too_fast = rate > held_at * (1 + kClear);
      const bool freed = g.bottleneck == share.link && (!full || rate < fastest * (1 - kClear));
      if (too_fast || freed) take_in(member.group);
    }
  }
  return set_.size() > before;
}

}  // namespace tamaki::simulation
