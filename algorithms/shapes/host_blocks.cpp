#include "algorithms/shapes/host_blocks.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_tree.hpp"

namespace tamaki {
namespace {

/// A rank's view of owners.
class Owners {
 public:
  Owners(const Hierarchy& hierarchy, int rank)
      : h_(hierarchy),
        owners(hierarchy.least_ranks()),
        hosts(hierarchy.hosts()),
        host(hierarchy.host_of(rank)),
        position(hierarchy.position_of(rank)),
        own(position % owners),
        local(hierarchy.ranks_of_host(host)) {}

 private:
  const Hierarchy& h_;

 public:
  const int owners, hosts, host, position, own;
  const std::span<const int> local;  // ranks of the host

  bool owns() const { return position < owners; }
  int owner(int of_host, int i) const { return h_.ranks_of_host(wrap(of_host, hosts))[i]; }
  /// Ranks that owner i of a host speaks for, itself first.
  std::vector<int> served(int of_host, int i) const {
    std::vector<int> ranks;
    const auto all = h_.ranks_of_host(wrap(of_host, hosts));
    for (int k = i; k < static_cast<int>(all.size()); k += owners) ranks.push_back(all[k]);
    return ranks;
  }
  std::span<const int> ranks_of(int of_host) const { return h_.ranks_of_host(wrap(of_host, hosts)); }
  /// Calls body(rank, its position) for the other ranks of the host, from the one after this on.
  template <class Body>
  void each_other(const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = 1; k < size; ++k) body(local[(position + k) % size], (position + k) % size);
  }
  /// The same backwards: in the order in which their messages to this rank leave.
  template <class Body>
  void each_sender(const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = size - 1; k > 0; --k) body(local[(position + k) % size], (position + k) % size);
  }
  /// The rank of a domain of this host that what owner i has for the domain (or gets from it) passes
  /// through.
  int relay(int i, int domain) const {
    const std::vector<int>& ranks = h_.domains_of(host)[domain];
    return ranks[static_cast<std::size_t>(i) % ranks.size()];
  }
  /// The rank that rank `of` of this host exchanges owner i's blocks with: the owner itself, where it is of
  /// the same domain or `of` is the relay, else the relay.
  int towards(int i, int of) const {
    const int domain = h_.domain_of(of), through = relay(i, domain);
    return h_.domain_of(local[i]) == domain || through == of ? local[i] : through;
  }
  /// Whether rank `of` is the relay of its domain for owner i of another domain of this host.
  bool relays(int i, int of) const {
    const int domain = h_.domain_of(of);
    return h_.domain_of(local[i]) != domain && relay(i, domain) == of;
  }
  /// Calls body(rank) for the ranks that owner i exchanges with itself, from the one after it on.
  template <class Body>
  void each_near(int i, const Body& body) const {
    const int size = static_cast<int>(local.size());
    for (int k = 1; k < size; ++k)
      if (const int other = local[(i + k) % size]; towards(i, other) == local[i]) body(other);
  }
  /// Calls body(rank) for the other ranks of a rank's domain.
  template <class Body>
  void each_mate(int of, const Body& body) const {
    const std::vector<int>& ranks = h_.domains_of(host)[h_.domain_of(of)];
    const int size = static_cast<int>(ranks.size()), index = h_.index_of(of);
    for (int k = 1; k < size; ++k) body(ranks[(index + k) % size]);
  }
  /// Most blocks that an owner speaks for.
  int most_served() const {
    std::size_t most = 0;
    for (int h = 0; h < hosts; ++h) most = std::max(most, ranks_of(h).size());
    return static_cast<int>((most + static_cast<std::size_t>(owners) - 1) /
                            static_cast<std::size_t>(owners));
  }
  /// The block that owner i of a host speaks for as its `k`-th, or -1.
  int served_at(int of_host, int i, int k) const {
    const auto all = ranks_of(of_host);
    const std::size_t at =
        static_cast<std::size_t>(i) + static_cast<std::size_t>(k) * static_cast<std::size_t>(owners);
    return at < all.size() ? all[at] : -1;
  }
};

constexpr int kAcross = 0, kForOthers = 1, kRelayed = 2;  // channels; kRelayed + i: of owner i

}  // namespace

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

namespace {

/// Ranks of a host in the order of their positions, as runs of consecutive ones (RankRun::index: position).
std::vector<RankRun> runs_of_host(std::span<const int> ranks) {
  std::vector<RankRun> runs;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i > 0 && ranks[i] == ranks[i - 1] + 1)
      ++runs.back().count;
    else
      runs.push_back({ranks[i], i, 1});
  return runs;
}

}  // namespace

Program host_alltoall(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank) {
  const Owners me(hierarchy, rank);
  const int p = problem.ranks, local = static_cast<int>(me.local.size());
  std::size_t most = 1;
  for (int h = 0; h < me.hosts; ++h) most = std::max(most, me.ranks_of(h).size());
  const int served = me.owns() ? static_cast<int>(me.served(me.host, me.own).size()) : 0;
  int outgoing = 0;  // scratch chunks for what goes to other hosts; behind them, what comes
  if (me.owns())
    for (int h = 1; h < me.hosts; ++h)
      outgoing += static_cast<int>(me.served(me.host + h, me.own).size()) * local;
  // Whether what comes from a host goes through scratch: for others as well as for this rank, or not in one
  // run.
  const auto to_sort = [&](int host) { return served > 1 || runs_of_host(me.ranks_of(host)).size() > 1; };
  int incoming = 0;
  for (int h = 1; h < me.hosts && me.owns(); ++h)
    if (to_sort(me.host + h)) incoming += served * static_cast<int>(me.ranks_of(me.host + h).size());
  Builder b({.algorithm = std::string(name),
             .collective = Collective::alltoall,
             .ranks = p,
             .rank = rank,
             .scratch_chunks = outgoing + incoming,
             .max_width = me.hosts > 1 ? static_cast<int>(most) : 1});
  const StepOptions one = {.size_of = in(0)};

  // Everyone: blocks for the own host straight, the others to the owners.
  auto giving = b.lane(kAcross);
  std::vector<StepId> given(static_cast<std::size_t>(p));  // step that read in(i)
  me.each_other(
      [&](int other, int) { given[other] = giving.send(in(other), to(other, out(rank), kAcross)); });
  giving.copy(in(rank), out(rank));
  StepId last_given{};
  for (int t = 1; t < me.hosts; ++t)
    me.each_other([&](int other, int position) {
      if (position >= me.owners) return;
      for (int block : me.served(me.host + t, position))
        last_given = giving.send(in(block), to(other, {}, kAcross));
    });
  if (p == 1) return b.take();

  auto taking = b.lane();
  me.each_sender([&](int other, int) {
    taking.recv(from(other, kAcross), out(other), {.after = {&given[other], 1}});
  });
  StepId last_sent{};
  if (me.owns()) {
    int cell = 0;
    for (int t = 1; t < me.hosts; ++t) {
      const std::vector<int> blocks = me.served(me.host + t, me.own);
      for (std::size_t k = 0; k < blocks.size(); ++k)
        taking.copy(in(blocks[k]), tmp(cell + static_cast<int>(k) * local + me.position), one);
      me.each_other([&](int other, int position) {
        for (int k = 0; k < static_cast<int>(blocks.size()); ++k)
          taking.recv(from(other, kAcross), tmp(cell + k * local + position), one);
      });
      for (std::size_t k = 0; k < blocks.size(); ++k, cell += local)
        last_sent = taking.send(tmp(cell), to(me.owner(me.host + t, me.own), {}, kAcross),
                                {.width = local, .size_of = in(0)});
    }
  }
  if (me.hosts == 1) return b.take();

  // In place, what arrives takes the room of what has left.
  std::vector<StepId> after;
  if (local > 1) after.push_back(last_given);
  if (me.owns()) after.push_back(last_sent);
  auto arriving = b.lane();
  if (!me.owns()) {
    for (int t = 1; t < me.hosts; ++t)
      for (const RankRun& run : runs_of_host(me.ranks_of(me.host - t)))
        arriving.recv(from(me.local[me.own], kForOthers), out(run.first),
                      {.width = run.count, .after = after});
    return b.take();
  }
  // What goes through scratch does so first: it waits for nothing, so that no host's messages wait for
  // another's.
  int cell = outgoing;
  for (int t = 1; t < me.hosts; ++t) {
    const int size = static_cast<int>(me.ranks_of(me.host - t).size());
    const Operand arrives = from(me.owner(me.host - t, me.own), kAcross);
    if (!to_sort(me.host - t)) continue;
    for (int k = 0; k < served; ++k, cell += size)
      arriving.recv(arrives, tmp(cell), {.width = size, .size_of = in(0)});
  }
  cell = outgoing;
  for (int t = 1; t < me.hosts; ++t) {
    const auto ranks = me.ranks_of(me.host - t);
    const int size = static_cast<int>(ranks.size());
    if (!to_sort(me.host - t)) {
      arriving.recv(from(me.owner(me.host - t, me.own), kAcross), out(ranks[0]),
                    {.width = size, .after = after});
      continue;
    }
    for (int k = 0; k < served; ++k, cell += size)
      for (const RankRun& run : runs_of_host(ranks)) {
        const int block = me.served_at(me.host, me.own, k);
        const Operand place = out(run.first);
        arriving.step({tmp(cell + run.index)}, {block == rank ? place : to(block, place, kForOthers)},
                      {.width = run.count, .after = after, .size_of = in(0)});
      }
  }
  return b.take();
}

ClosedForm host_alltoall_form(const Hierarchy& hierarchy, const Problem& problem) {
  const std::int64_t p = problem.ranks;
  ClosedForm form = {.rounds = hierarchy.hosts() == 1 ? p - 1 : ClosedForm::kNotStated};
  for (int r = 0; r < p; ++r) {
    const Owners me(hierarchy, r);
    std::int64_t remote = 0;  // ranks of other hosts that the owner of its position speaks with
    for (int h = 1; h < me.hosts; ++h) remote += std::ssize(me.served(me.host + h, me.own));
    const std::int64_t local = std::ssize(me.local), mine = std::ssize(me.served(me.host, me.own)),
                       far = p - local;
    std::int64_t sent = local - 1, received = local - 1;
    if (local > 1) sent += far - (me.owns() ? remote : 0);
    if (me.owns()) {
      sent += remote * local + (mine - 1) * far;
      received += remote * (local - 1) + mine * far;
    } else {
      received += far;
    }
    form.chunks_sent = std::max(form.chunks_sent, sent);
    form.chunks_received = std::max(form.chunks_received, received);
  }
  return form;
}

}  // namespace tamaki
