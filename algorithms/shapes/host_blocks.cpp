#include "algorithms/shapes/host_blocks.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/owners.hpp"

namespace tamaki {

Program host_allgather(const Hierarchy& hierarchy, std::string_view name, const Problem& problem,
                       int rank) {
  const Owners me(hierarchy, rank);
  Builder b({.algorithm = std::string(name),
             .collective = Collective::allgather,
             .ranks = problem.ranks,
             .rank = rank});
  auto passing = b.lane(kAcross);
  const int speaker = me.local[me.own];
  if (!me.owns()) {
    passing.step({in(0)}, {to(speaker, out(rank), kForOthers), out(rank)});
  } else {
    // One block of each host at a time goes around: more would need as many slots.
    const int next = me.owner(me.host + 1, me.own), previous = me.owner(me.host - 1, me.own);
    for (int k = 0; k < me.most_served(); ++k)
      for (int t = 0; t < me.hosts; ++t) {
        const int block = me.served_at(me.host - t, me.own, k);
        if (block < 0) continue;
        std::vector<Operand> places;
        if (t < me.hosts - 1) places.push_back(to(next, out(block), kAcross));
        me.each_near(me.own, [&](int other) {
          if (other != block) places.push_back(to(other, out(block), kAcross));
        });
        places.push_back(out(block));
        passing.step(std::vector{block == rank ? in(0)
                                 : t == 0      ? from(block, kForOthers)
                                               : from(previous, kAcross)},
                     places);
      }
  }
  if (me.local.size() == 1) return b.take();
  auto taking = b.lane();
  for (int k = 0; k < me.most_served(); ++k)
    for (int t = 0; t < me.hosts; ++t)
      me.each_sender([&](int other, int position) {
        const int block = position < me.owners ? me.served_at(me.host - t, position, k) : -1;
        if (block < 0) return;
        const int through = me.towards(position, rank);
        std::vector<Operand> places;
        if (me.relays(position, rank))
          me.each_mate(rank, [&](int mate) {
            if (mate != block) places.push_back(to(mate, out(block), kRelayed + position));
          });
        if (block == rank) {
          if (!places.empty()) taking.step(std::vector{in(0)}, places);
          return;
        }
        places.push_back(out(block));
        taking.step(std::vector{from(through, through == other ? kAcross : kRelayed + position)}, places);
      });
  return b.take();
}

namespace {

/// Messages inside the host, for each rank as an owner and as a relay.
struct InsideCounts {
  std::vector<std::int64_t> all;     // one for each block and rank to be reached
  std::vector<std::int64_t> others;  // without those that would bring ranks their own blocks
};
InsideCounts count_inside(const Hierarchy& hierarchy, int ranks) {
  InsideCounts counts{std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0), {}};
  counts.others = counts.all;
  for (int h = 0; h < hierarchy.hosts(); ++h)
    for (int i = 0; i < hierarchy.least_ranks(); ++i) {
      const int owner = hierarchy.ranks_of_host(h)[i];
      const Owners me(hierarchy, owner);
      std::int64_t blocks = 0;
      for (int other = 0; other < me.hosts; ++other) blocks += std::ssize(me.served(other, i));
      const auto add = [&](int sender, int reached) {
        const int position = hierarchy.position_of(reached);
        counts.all[sender] += blocks;
        counts.others[sender] += blocks - (position >= me.owners && position % me.owners == i);
      };
      me.each_near(i, [&](int other) {
        add(owner, other);
        if (me.relays(i, other)) me.each_mate(other, [&](int mate) { add(other, mate); });
      });
    }
  return counts;
}

}  // namespace

ClosedForm host_allgather_form(const Hierarchy& hierarchy, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  const bool in_step = hierarchy.even() && hierarchy.levels() == 2;
  ClosedForm form = {.rounds = in_step ? p - 1 : ClosedForm::kNotStated, .chunks_received = p - 1};
  const InsideCounts inside = count_inside(hierarchy, problem.ranks);
  for (int r = 0; r < p; ++r) {
    const Owners me(hierarchy, r);
    std::int64_t sent = inside.others[r];
    if (!me.owns()) ++sent;
    for (int h = 0; h < me.hosts && me.hosts > 1 && me.owns(); ++h)
      if (h != wrap(me.host + 1, me.hosts)) sent += std::ssize(me.served(h, me.own));
    form.chunks_sent = std::max(form.chunks_sent, sent);
  }
  return form;
}

Program host_reduce_scatter(const Hierarchy& hierarchy, std::string_view name, const Problem& problem,
                            int rank) {
  const Owners me(hierarchy, rank);
  Builder b({.algorithm = std::string(name),
             .collective = Collective::reduce_scatter,
             .ranks = problem.ranks,
             .rank = rank});
  if (me.owns()) {
    auto passing = b.lane(kAcross);
    const int next = me.owner(me.host + 1, me.own), previous = me.owner(me.host - 1, me.own);
    for (int k = 0; k < me.most_served(); ++k)
      for (int t = 0; t < me.hosts; ++t) {
        const int block = me.served_at(me.host - 1 - t, me.own, k);
        if (block < 0) continue;
        std::vector<Operand> sources = {in(block)};
        if (t > 0) sources.push_back(from(previous, kAcross));
        me.each_near(me.own, [&](int other) { sources.push_back(from(other, kAcross)); });
        const bool complete = t == me.hosts - 1;
        const Operand place = !complete       ? to(next, {}, kAcross)
                              : block == rank ? out(0)
                                              : to(block, out(0), kForOthers);
        passing.step(sources, std::vector{place}, {.finish = complete, .size_of = in(block)});
      }
  } else {
    auto taking = b.lane(kForOthers);
    taking.recv(from(me.local[me.own], kForOthers), out(0));
  }
  if (me.local.size() == 1) return b.take();
  auto giving = b.lane();
  for (int k = 0; k < me.most_served(); ++k)
    for (int t = 0; t < me.hosts; ++t)
      me.each_other([&](int other, int position) {
        const int block = position < me.owners ? me.served_at(me.host - 1 - t, position, k) : -1;
        if (block < 0) return;
        const int through = me.towards(position, rank);
        std::vector<Operand> sources = {in(block)};
        if (me.relays(position, rank))
          me.each_mate(rank, [&](int mate) { sources.push_back(from(mate, kRelayed + position)); });
        giving.step(sources,
                    std::vector{to(through, {}, through == other ? kAcross : kRelayed + position)});
      });
  return b.take();
}

ClosedForm host_reduce_scatter_form(const Hierarchy& hierarchy, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  const bool in_step = hierarchy.even() && hierarchy.levels() == 2;
  ClosedForm form = {.rounds = in_step ? p - 1 : ClosedForm::kNotStated};
  const InsideCounts inside = count_inside(hierarchy, problem.ranks);
  for (int r = 0; r < p; ++r) {
    const Owners me(hierarchy, r);
    std::int64_t blocks = 0;  // that the owner of its position speaks for
    for (int other = 0; other < me.hosts; ++other) blocks += std::ssize(me.served(other, me.own));
    const std::int64_t mine = std::ssize(me.served(me.host, me.own)), local = std::ssize(me.local);
    std::int64_t sent = local > 1 ? p - (me.owns() ? blocks : 0) : 0;
    std::int64_t received = inside.all[r] + (me.owns() ? 0 : 1);
    if (me.owns()) {
      // A block passes through all hosts; it starts at the one after its own.
      sent += blocks - mine + (mine - 1);
      if (me.hosts > 1) received += blocks - std::ssize(me.served(me.host - 1, me.own));
    }
    form.chunks_sent = std::max(form.chunks_sent, sent);
    form.chunks_received = std::max(form.chunks_received, received);
  }
  return form;
}

}  // namespace tamaki
