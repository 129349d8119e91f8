#include "select/select.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/options.hpp"
#include "schedule/logical.hpp"

namespace tamaki {
namespace {

constexpr std::uint64_t K = 1024, M = 1024 * K;

/// Where the ranks are; nothing where nobody says.
const Topology& topology_of(const Question& q) {
  static const Topology nowhere;
  return q.topology != nullptr ? *q.topology : nowhere;
}

/// Empty where `a` may serve the question, else why not.
std::string refusal(const Algorithm& a, const Question& q, const Problem& problem) {
  if (!q.commutative && !a.keeps_order && reduces(q.collective))
    return "it changes the order of a non-commutative operation";
  if (q.reproducible && reduces(q.collective) && !a.canonical)
    return "its bits depend on its steps, and `reproducible` is set";
  if (q.pairwise && !a.pairwise_sizes) return "it needs to know the block sizes of all ranks";
  if (q.uneven && !a.uneven_safe) return "it needs blocks of one size";
  return a.refuses == nullptr ? std::string() : a.refuses(topology_of(q), problem);
}

/// One shot moves (p-1) n where two shots move 2n, but waits once instead of twice. Two ranks move as much
/// either way.
bool one_shot_wins(std::uint64_t n, std::uint64_t p) { return n * (p - 1) <= (p == 2 ? 16 * K : 8 * K); }

/// There are several hosts, and more ranks than hosts.
bool several_on_a_host(const Topology& topology) {
  const auto last = std::max_element(topology.host_of_rank.begin(), topology.host_of_rank.end());
  return last != topology.host_of_rank.end() && *last > 0 && *last + 1 < topology.ranks();
}

/// The library's order of preference; the first that exists and may serve is taken.
std::vector<std::string_view> preferences(const Question& q) {
  const bool local = q.topology == nullptr || q.topology->one_host();
  const auto p = static_cast<std::uint64_t>(q.ranks);
  const std::uint64_t n = q.bytes;
  const bool many = q.ranks > 32;
  switch (q.collective) {
    case Collective::allreduce:
      if (local && !many)
        return one_shot_wins(n, p) ? std::vector<std::string_view>{"direct_one_shot", "direct_two_shot"}
                                   : std::vector<std::string_view>{"direct_two_shot", "ring"};
      // Ranks that share a host meet there first; on a grid with several ports, large messages use all of
      // them. Algorithms that need what is not known refuse, and the next one serves.
      if (n >= 256 * K && topology_of(q).grid.size() > 1) return {"torus", "hierarchical", "ring"};
      if (!topology_of(q).rail_of_rank.empty() && several_on_a_host(topology_of(q))) {
        if (n <= 64 * K) return {"rail_tree", "hierarchical_tree", "recursive_doubling", "ring"};
        return {"rail", "rail_tree", "hierarchical", "ring"};
      }
      if (several_on_a_host(topology_of(q))) {
        if (n <= 16 * K) return {"hierarchical_tree", "recursive_doubling", "direct_one_shot", "ring"};
        return {"hierarchical", "rabenseifner", "ring", "direct_two_shot"};
      }
      if (n <= 8 * K) return {"recursive_doubling", "direct_one_shot", "ring"};
      if (n <= 512 * K) return {"rabenseifner", "double_binary_tree", "ring", "direct_two_shot"};
      return {"ring", "direct_two_shot"};
    case Collective::reduce:
      if (local && !many && n >= 64 * K) return {"direct", "knomial"};
      return n <= 64 * K ? std::vector<std::string_view>{"knomial", "direct"}
                         : std::vector<std::string_view>{"double_binary_tree", "chain", "direct"};
    case Collective::broadcast:
      if (local && !many) return {"direct", "knomial"};
      return n <= 64 * K ? std::vector<std::string_view>{"knomial", "direct"}
                         : std::vector<std::string_view>{"double_binary_tree", "chain", "direct"};
    case Collective::allgather:
      if (local && !many) return {"direct", "ring"};
      return n <= 64 * K ? std::vector<std::string_view>{"bruck", "direct"}
                         : std::vector<std::string_view>{"ring", "direct"};
    case Collective::reduce_scatter:
      if (local && !many) return {"direct", "pairwise"};
      return n <= 64 * K ? std::vector<std::string_view>{"recursive_halving", "pairwise", "direct"}
                         : std::vector<std::string_view>{"ring", "pairwise", "direct"};
    case Collective::gather:
    case Collective::scatter:
      if (local && !many) return {"direct", "knomial"};
      return n <= 64 * K ? std::vector<std::string_view>{"knomial", "direct"}
                         : std::vector<std::string_view>{"direct"};
    case Collective::alltoall:
      if (local && !many) return {"direct", "pairwise"};
      return n / p <= 1 * K ? std::vector<std::string_view>{"bruck", "pairwise", "direct"}
                            : std::vector<std::string_view>{"pairwise", "direct"};
    default:
      return {"dissemination"};
  }
}

int default_lanes(const Question& q) {
  const bool local = q.topology == nullptr || q.topology->one_host();
  return !local && q.bytes >= 4 * M ? 2 : 1;
}

/// The candidate's problem with what the call asks for.
Problem problem_of(const Question& q, const Problem& candidate) {
  Problem problem = candidate;
  problem.root = q.root;
  problem.commutative = q.commutative;
  if (q.lanes > 0) problem.lanes = q.lanes;
  return problem;
}

Problem problem_of(const Question& q) {
  Problem problem;
  problem.collective = q.collective;
  problem.ranks = q.ranks;
  problem.root = q.root;
  problem.commutative = q.commutative;
  problem.lanes = q.lanes > 0 ? q.lanes : default_lanes(q);
  return problem;
}

/// The schedule of a rule, where it can serve.
Result<Choice> loaded_choice(const Question& q, const SizeRule& rule) {
  const std::shared_ptr<const LoadedSchedule>& loaded = rule.loaded;
  std::string why;
  if (loaded == nullptr)
    why = "it has not been read";
  else if (!q.commutative && !loaded->keeps_order)
    why = "it changes the order of a non-commutative operation";
  else if (q.reproducible && reduces(q.collective))
    why = "its bits depend on its steps, and `reproducible` is set";
  else if (q.uneven && !loaded->uneven)
    why = "it needs blocks of one size";
  else if (loaded->programs.front().root != q.root && has_root(q.collective))
    why = "it is for root " + std::to_string(loaded->programs.front().root);
  if (why.empty()) return Choice{.problem = problem_of(q), .loaded = loaded};
  return fail(Code::invalid_usage, "schedule " + rule.file + " cannot serve this " +
                                       std::string(name_of(q.collective)) + " of " +
                                       std::to_string(q.bytes) + " bytes on " + std::to_string(q.ranks) +
                                       " ranks: " + why);
}

/// The cheapest candidate that can serve. Of those that are as cheap to within what a model can tell, the
/// one that is preferred, so that choices do not change back and forth over sizes.
std::optional<Choice> cheapest(const Question& q, const std::vector<std::string_view>& preferred) {
  std::optional<Choice> best;
  std::size_t best_place = preferred.size();
  double least = 0;
  for (const Estimate& estimate :
       q.costs->estimates(q.collective, static_cast<double>(q.bytes), preferred)) {
    const Algorithm& algorithm = *estimate.candidate.algorithm;
    const Problem problem = problem_of(q, estimate.candidate.problem);
    if (best && estimate.seconds > q.costs->alike() * least) break;
    if (!refusal(algorithm, q, problem).empty()) continue;
    const auto place = static_cast<std::size_t>(
        std::find(preferred.begin(), preferred.end(), algorithm.name) - preferred.begin());
    if (!best) least = estimate.seconds;
    if (best && place >= best_place) continue;
    best = Choice{&algorithm, problem};
    best_place = place;
  }
  return best;
}

/// "lanes=2"; false where it is none.
bool parse_wish(std::string_view text, SizeRule* rule) {
  struct Wish {
    std::string_view name;
    int SizeRule::*member;
    int low, high;
  };
  for (const Wish& wish :
       {Wish{"lanes=", &SizeRule::lanes, 1, 64}, Wish{"pieces=", &SizeRule::pieces, 1, 65536},
        Wish{"radix=", &SizeRule::radix, 2, 1024}}) {
    if (!text.starts_with(wish.name)) continue;
    const std::string_view number = text.substr(wish.name.size());
    int value = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (read.ec != std::errc() || read.ptr != number.data() + number.size() || value < wish.low ||
        value > wish.high)
      return false;
    rule->*wish.member = value;
    return true;
  }
  return false;
}

}  // namespace

std::string rules_variable(Collective collective) {
  std::string name = "TAMAKI_";
  for (const char letter : name_of(collective))
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

Result<std::vector<SizeRule>> parse_rules(Collective collective, std::string_view text) {
  const std::string_view whole = text;
  std::vector<SizeRule> rules;
  const auto wrong = [&](std::string_view part, const std::string& why) {
    return fail(Code::invalid_argument, "rules \"" + std::string(whole) + "\" for " +
                                            std::string(name_of(collective)) + ": \"" + std::string(part) +
                                            "\": " + why);
  };
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    SizeRule rule;
    constexpr std::string_view kFile = "file:";
    auto colon = part.find(':');
    if (part.starts_with(
            kFile)) {  // a path may have colons: the last one begins a range if a range follows it
      colon = part.rfind(':');
      if (colon < kFile.size() || part.find('-', colon) == std::string_view::npos ||
          part.find('/', colon) != std::string_view::npos)
        colon = std::string_view::npos;
      rule.file = part.substr(kFile.size(), colon == std::string_view::npos ? colon : colon - kFile.size());
      if (rule.file.empty()) return wrong(part, "it names no file");
    }
    std::string_view wishes = part.substr(0, colon);
    const auto slash = rule.file.empty() ? std::min(wishes.find('/'), wishes.size()) : wishes.size();
    rule.algorithm = wishes.substr(0, slash);
    for (wishes.remove_prefix(slash); !wishes.empty();) {
      wishes.remove_prefix(1);
      const auto end = std::min(wishes.find('/'), wishes.size());
      if (!parse_wish(wishes.substr(0, end), &rule))
        return wrong(part, "\"" + std::string(wishes.substr(0, end)) +
                               "\" is no wish; there are lanes=1..64, pieces=1..65536, radix=2..1024");
      wishes.remove_prefix(end);
    }
    if (colon != std::string_view::npos) {
      const std::string_view range = part.substr(colon + 1);
      const auto dash = range.find('-');
      if (dash == std::string_view::npos) return wrong(part, "a range is from-to, e.g. 16K-100M or 16K-");
      const std::string_view from = range.substr(0, dash), to = range.substr(dash + 1);
      if (!from.empty()) {
        const auto parsed = parse_bytes(from);
        if (!parsed) return wrong(part, parsed.error().message);
        rule.from = *parsed;
      }
      if (!to.empty()) {
        const auto parsed = parse_bytes(to);
        if (!parsed) return wrong(part, parsed.error().message);
        rule.to = *parsed;
      }
      if (rule.from >= rule.to) return wrong(part, "the range is empty");
    }
    if (!rule.file.empty()) {
      rule.algorithm = "file";
      rules.push_back(std::move(rule));
      continue;
    }
    const bool family = collective == Collective::allreduce && rule.algorithm == "direct";
    if (!family && find_algorithm(collective, rule.algorithm) == nullptr)
      return wrong(part, "there is no such algorithm; there are " + algorithm_names(collective));
    rules.push_back(std::move(rule));
  }
  return rules;
}

const SizeRule* deciding_rule(const Question& q) {
  if (q.rules == nullptr || q.pairwise) return nullptr;
  for (const SizeRule& rule : *q.rules) {
    if (rule.loaded != nullptr && rule.loaded->ranks() != q.ranks) continue;
    if (q.bytes >= rule.from && q.bytes < rule.to) return &rule;
  }
  return nullptr;
}

Status load_files(Collective collective, std::vector<SizeRule>* rules) {
  for (SizeRule& rule : *rules) {
    if (rule.file.empty() || rule.loaded != nullptr) continue;
    Result<std::shared_ptr<const LoadedSchedule>> loaded = load_schedule(rule.file, collective);
    if (!loaded) return pass(std::move(loaded));
    rule.loaded = std::move(*loaded);
  }
  return {};
}

Result<Choice> select(const Question& q) {
  Choice choice;
  choice.problem = problem_of(q);
  if (const SizeRule* rule = deciding_rule(q); rule != nullptr) {
    if (!rule->file.empty()) return loaded_choice(q, *rule);
    std::string name = rule->algorithm;
    if (q.collective == Collective::allreduce && name == "direct")
      name = one_shot_wins(q.bytes, static_cast<std::uint64_t>(q.ranks)) ? "direct_one_shot"
                                                                         : "direct_two_shot";
    choice.algorithm = find_algorithm(q.collective, name);
    if (rule->lanes > 0) choice.problem.lanes = rule->lanes;
    if (rule->pieces > 0) choice.problem.pieces = rule->pieces;
    if (rule->radix > 0) choice.problem.radix = rule->radix;
    if (const std::string why = refusal(*choice.algorithm, q, choice.problem); !why.empty())
      return fail(Code::invalid_usage, "algorithm " + name + " cannot serve this " +
                                           std::string(name_of(q.collective)) + " of " +
                                           std::to_string(q.bytes) + " bytes on " +
                                           std::to_string(q.ranks) + " ranks: " + why);
    return choice;
  }
  const std::vector<std::string_view> preferred = preferences(q);
  if (q.costs != nullptr && !q.pairwise)
    if (const std::optional<Choice> best = cheapest(q, preferred)) return *best;
  for (std::string_view name : preferred) {
    const Algorithm* a = find_algorithm(q.collective, name);
    if (a == nullptr || !refusal(*a, q, choice.problem).empty()) continue;
    choice.algorithm = a;
    return choice;
  }
  std::string reasons;
  for (const Algorithm* a : all_algorithms()) {
    if (a->collective != q.collective) continue;
    const std::string why = refusal(*a, q, choice.problem);
    if (why.empty()) {
      choice.algorithm = a;
      return choice;
    }
    reasons += (reasons.empty() ? "" : "; ") + std::string(a->name) + ": " + why;
  }
  return fail(Code::invalid_usage, "no algorithm serves this " + std::string(name_of(q.collective)) +
                                       " on " + std::to_string(q.ranks) + " ranks: " + reasons);
}

std::vector<Consideration> considerations(const Question& q) {
  std::vector<Consideration> all;
  const auto add = [&](Consideration made) {
    if (const std::string why =
            refusal(*made.candidate.algorithm, q, problem_of(q, made.candidate.problem));
        !why.empty())
      made.why_not = why;
    all.push_back(std::move(made));
  };
  if (q.costs != nullptr) {
    const std::vector<std::string_view> preferred = preferences(q);
    for (const Estimate& estimate :
         q.costs->estimates(q.collective, static_cast<double>(q.bytes), preferred))
      add({estimate.candidate, estimate.seconds, estimate.origin});
    for (const Curve& curve : q.costs->unknown(q.collective))
      add({.candidate = curve.candidate, .why_not = curve.why_not});
  } else {
    for (const Algorithm* a : all_algorithms())
      if (a->collective == q.collective)
        add({.candidate = {.algorithm = a, .problem = problem_of(q)}, .why_not = "costs are not known"});
  }
  std::stable_partition(all.begin(), all.end(), [](const Consideration& c) { return c.why_not.empty(); });
  return all;
}

}  // namespace tamaki
