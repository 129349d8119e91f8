#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/shapes/arguments.hpp"
#include "algorithms/shapes/host_blocks.hpp"
#include "algorithms/shapes/host_tree.hpp"
#include "algorithms/shapes/owners.hpp"

namespace tamaki {

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

/// What the ranks of a domain have for the ranks of the other domains of their host passes through one rank
/// of theirs (Owners::relay), another one for each rank that gets it: first what is for that rank itself,
/// then, for the hosts from the next one on, the blocks that it speaks for there as an owner.
///
/// In rounds, which are the same for all ranks of a domain: in each, a rank gives each relay one block at
/// most, and a relay passes on one message at most. A relay waits for blocks of its own round only, and a
/// rank for room that relays make in earlier ones, so nothing gets stuck.
class BetweenDomains {
 public:
  BetweenDomains(const Hierarchy& hierarchy, const Owners& owners, int rank)
      : me_(owners),
        domain_(hierarchy.domain_of(rank)),
        index_(hierarchy.index_of(rank)),
        most_served_(owners.most_served()),
        domains_(hierarchy.domains_of(owners.host)) {
    int next = 0;
    for (const std::vector<int>& ranks : domains_) {
      first_.push_back(next);
      next += static_cast<int>(ranks.size());
    }
    // From the domain after the own one on, so that domains do not all begin with the same.
    const int mates = size_of(domain_), local = static_cast<int>(me_.local.size());
    relayed_.resize(static_cast<std::size_t>(mates));
    for (int k = 0; k < local - mates; ++k) {
      const int to = (first_[domain_] + mates + k) % local;
      relayed_[static_cast<std::size_t>(to % mates)].push_back(to);
    }
    for (int d = 0; d < static_cast<int>(domains_.size()); ++d)
      if (d != domain_ && runs_of_host(domains_[d]).size() > 1) to_sort_ = std::max(to_sort_, size_of(d));
  }

  bool any() const { return domains_.size() > 1; }
  /// Scratch chunks: a message that is put together here, and one that has to be sorted.
  int scratch_chunks() const { return gathering() + to_sort_; }

  /// Adds the lanes, with scratch from chunk `scratch` on, and to `given`, for the ranks of other domains
  /// of this host, the steps that read the blocks for them.
  void add(Builder& b, int scratch, std::vector<StepId>& given) {
    add_giving(b, scratch, given);
    add_taking(b, scratch + gathering(), given);
  }
  /// Once these have run, nothing that is to leave the domain is read from the input any more.
  const std::vector<StepId>& last_read() const { return last_read_; }
  /// The step after which the scratch holds what other domains have for the block that this rank speaks for
  /// at host + t as its k-th.
  StepId taken(int t, int k) const { return taken_[place_of(t, k)]; }

 private:
  int size_of(int domain) const { return static_cast<int>(domains_[domain].size()); }
  int gathering() const { return size_of(domain_) > 1 && relays() ? size_of(domain_) : 0; }
  bool relays() const { return !relayed_[index_].empty(); }
  bool gives() const {  // to another relay
    for (int mate = 0; mate < size_of(domain_); ++mate)
      if (mate != index_ && !relayed_[mate].empty()) return true;
    return false;
  }
  std::size_t place_of(int t, int k) const {
    return static_cast<std::size_t>(t - 1) * static_cast<std::size_t>(most_served_) +
           static_cast<std::size_t>(k);
  }
  /// Calls body(t, k) for what goes to a rank: (0, 0) what is for itself, then its k-th block at host + t.
  template <class Body>
  void each_kind(const Body& body) const {
    body(0, 0);
    for (int t = 1; t < me_.hosts; ++t)
      for (int k = 0; k < most_served_; ++k) body(t, k);
  }
  /// The block that it is, for the rank of a position of this host; -1: none.
  int block_of(int position, int t, int k) const {
    if (t == 0) return me_.local[position];
    return position < me_.owners ? me_.served_at(me_.host + t, position, k) : -1;
  }

  void add_giving(Builder& b, int scratch, std::vector<StepId>& given);
  void add_taking(Builder& b, int sorting, const std::vector<StepId>& given);

  const Owners& me_;
  const int domain_, index_, most_served_;
  const std::span<const std::vector<int>> domains_;
  std::vector<int> first_;                 // position of each domain's first rank
  std::vector<std::vector<int>> relayed_;  // for each rank of the own domain: positions that it relays for
  int to_sort_ = 0;
  std::vector<StepId> last_read_, taken_;
};

void BetweenDomains::add_giving(Builder& b, int scratch, std::vector<StepId>& given) {
  const std::vector<int>& mates = domains_[domain_];
  const int size = size_of(domain_);
  std::size_t rounds = 0;
  for (const std::vector<int>& positions : relayed_) rounds = std::max(rounds, positions.size());
  const StepOptions one = {.size_of = in(0)};
  std::optional<Builder::LaneBuilder> giving, relaying;
  if (gives()) giving = b.lane(kRelayed);
  if (relays()) relaying = b.lane(kFromRelays);
  StepId last_given{-1, -1}, last_relayed{-1, -1};
  each_kind([&](int t, int k) {
    for (std::size_t round = 0; round < rounds; ++round)
      for (int n = 1; n <= size; ++n) {
        const int mate = (index_ + n) % size;
        if (round >= relayed_[mate].size()) continue;
        const int position = relayed_[mate][round], block = block_of(position, t, k);
        if (block < 0) continue;
        StepId read;
        if (mate != index_) {
          read = last_given = giving->send(in(block), to(mates[mate], {}, kRelayed));
        } else {
          const Operand lands = t == 0 && runs_of_host(mates).size() == 1 ? out(mates[0]) : Operand{};
          const Operand message = to(me_.local[position], lands, kFromRelays);
          if (size == 1) {
            read = last_relayed = relaying->send(in(block), message);
          } else {
            read = last_relayed = relaying->copy(in(block), tmp(scratch + index_), one);
            for (int m = size - 1; m > 0; --m) {
              const int other = (index_ + m) % size;  // in the order in which they get here
              relaying->recv(from(mates[other], kRelayed), tmp(scratch + other), one);
            }
            relaying->send(tmp(scratch), message, {.width = size, .size_of = in(0)});
          }
        }
        if (t == 0) given[block] = read;
      }
  });
  for (StepId last : {last_given, last_relayed})
    if (last.lane >= 0) last_read_.push_back(last);
}

// What is for this rank itself waits until what it overwrites in place has been given. That happens: ranks
// give what is for ranks of their host before all else, and each relay has one such message for a rank, for
// which there is room. The rest waits for nothing.
void BetweenDomains::add_taking(Builder& b, int sorting, const std::vector<StepId>& given) {
  const int count = static_cast<int>(domains_.size());
  auto taking = b.lane(kFromRelays);
  taken_.resize(place_of(me_.hosts, 0));
  int cell = 0;
  each_kind([&](int t, int k) {
    if (block_of(me_.position, t, k) < 0) return;
    // Backwards: in the order in which they begin with the ranks of this domain.
    for (int n = 1; n < count; ++n) {
      const int d = (domain_ - n + count) % count;
      const std::vector<int>& ranks = domains_[d];
      const Operand arrives = from(me_.relay(me_.position, d), kFromRelays);
      if (t > 0) {
        taken_[place_of(t, k)] =
            taking.recv(arrives, tmp(cell + first_[d]), {.width = size_of(d), .size_of = in(0)});
        continue;
      }
      std::vector<StepId> left;
      for (int other : ranks) left.push_back(given[other]);
      const std::vector<RankRun> runs = runs_of_host(ranks);
      if (runs.size() == 1) {
        taking.recv(arrives, out(ranks[0]), {.width = size_of(d), .after = left});
        continue;
      }
      taking.recv(arrives, tmp(sorting), {.width = size_of(d), .size_of = in(0)});
      for (const RankRun& run : runs)
        taking.copy(tmp(sorting + run.index), out(run.first), {.width = run.count, .after = left});
    }
    if (t > 0) cell += static_cast<int>(me_.local.size());
  });
}

}  // namespace

Program host_alltoall(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank) {
  const Owners me(hierarchy, rank);
  BetweenDomains between(hierarchy, me, rank);
  const int p = problem.ranks, local = static_cast<int>(me.local.size());
  std::size_t most = 1;  // blocks of a message: of the ranks of a host, or, on one, of a domain
  for (int h = 0; h < me.hosts && me.hosts > 1; ++h) most = std::max(most, me.ranks_of(h).size());
  if (me.hosts == 1 && between.any())
    for (const std::vector<int>& domain : hierarchy.domains_of(0)) most = std::max(most, domain.size());
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
             .scratch_chunks = outgoing + incoming + (between.any() ? between.scratch_chunks() : 0),
             .max_width = static_cast<int>(most)});
  const StepOptions one = {.size_of = in(0)};

  // Everyone: blocks for the own host straight, the others to the owners; both inside the own domain.
  auto giving = b.lane(kAcross);
  std::vector<StepId> given(static_cast<std::size_t>(p));  // step that read in(i)
  const auto is_near = [&](int other) { return hierarchy.domain_of(other) == hierarchy.domain_of(rank); };
  me.each_other([&](int other, int) {
    if (is_near(other)) given[other] = giving.send(in(other), to(other, out(rank), kAcross));
  });
  giving.copy(in(rank), out(rank));
  StepId last_given{};
  for (int t = 1; t < me.hosts; ++t)
    me.each_other([&](int other, int position) {
      if (position >= me.owners || !is_near(other)) return;
      for (int block : me.served(me.host + t, position))
        last_given = giving.send(in(block), to(other, {}, kAcross));
    });
  if (p == 1) return b.take();
  if (between.any()) between.add(b, outgoing + incoming, given);

  auto taking = b.lane();
  me.each_sender([&](int other, int) {
    if (is_near(other)) taking.recv(from(other, kAcross), out(other), {.after = {&given[other], 1}});
  });
  StepId last_sent{};
  if (me.owns()) {
    int cell = 0;
    for (int t = 1; t < me.hosts; ++t) {
      const std::vector<int> blocks = me.served(me.host + t, me.own);
      for (std::size_t k = 0; k < blocks.size(); ++k)
        taking.copy(in(blocks[k]), tmp(cell + static_cast<int>(k) * local + me.position), one);
      me.each_other([&](int other, int position) {
        if (!is_near(other)) return;
        for (int k = 0; k < static_cast<int>(blocks.size()); ++k)
          taking.recv(from(other, kAcross), tmp(cell + k * local + position), one);
      });
      for (std::size_t k = 0; k < blocks.size(); ++k, cell += local) {
        std::vector<StepId> whole;
        if (between.any()) whole.push_back(between.taken(t, static_cast<int>(k)));
        last_sent = taking.send(tmp(cell), to(me.owner(me.host + t, me.own), {}, kAcross),
                                {.width = local, .after = whole, .size_of = in(0)});
      }
    }
  }
  if (me.hosts == 1) return b.take();

  // In place, what arrives takes the room of what has left.
  std::vector<StepId> after;
  if (local > 1) after.push_back(last_given);
  if (me.owns()) after.push_back(last_sent);
  after.insert(after.end(), between.last_read().begin(), between.last_read().end());
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
  const bool in_step = hierarchy.hosts() == 1 && hierarchy.levels() == 2;
  ClosedForm form = {.rounds = in_step ? p - 1 : ClosedForm::kNotStated};
  const int owners = hierarchy.least_ranks();
  const auto served = [&](int host, int i) {
    return (std::ssize(hierarchy.ranks_of_host(host)) - i + owners - 1) / owners;
  };
  std::vector<std::int64_t> served_anywhere(static_cast<std::size_t>(owners), 0);
  for (int h = 0; h < hierarchy.hosts(); ++h)
    for (int i = 0; i < owners; ++i) served_anywhere[i] += served(h, i);
  for (int r = 0; r < p; ++r) {
    const Owners me(hierarchy, r);
    const int domain = hierarchy.domain_of(r);
    // What a rank of the host gets from each other one: its own block, and those that it speaks for.
    const auto blocks = [&](int position) {
      return position < owners ? 1 + served_anywhere[position] - served(me.host, position) : 1;
    };
    const std::int64_t local = std::ssize(me.local), mine = served(me.host, me.own),
                       mates = std::ssize(hierarchy.domains_of(me.host)[domain]), far = p - local;
    std::int64_t sent = 0, received = (local - 1) * blocks(me.position);
    me.each_other([&](int other, int position) {
      if (hierarchy.domain_of(other) == domain || me.relay(position, domain) != r) {
        sent += blocks(position);
      } else {
        sent += mates * blocks(position);
        received += (mates - 1) * blocks(position);
      }
    });
    if (me.owns()) {
      sent += (blocks(me.position) - 1) * local + (mine - 1) * far;
      received += mine * far;
    } else {
      received += far;
    }
    form.chunks_sent = std::max(form.chunks_sent, sent);
    form.chunks_received = std::max(form.chunks_received, received);
  }
  return form;
}

}  // namespace tamaki
