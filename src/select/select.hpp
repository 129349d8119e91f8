#pragma once
// Which algorithm serves a call: the user's rules first, then the cheapest by what the algorithms cost
// where the ranks are (costs.hpp: simulated, corrected by measurements), then an order of preference for
// what nobody knows the costs of. The answer depends only on what is equal on all ranks.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "base/result.hpp"
#include "select/costs.hpp"
#include "select/loaded.hpp"

namespace tamaki {

/// "name:from-to" with sizes like 16K; `to` is exclusive, either end may be left out. Sizes are of the
/// whole message n: the vector (allreduce, reduce, broadcast) or all ranks' blocks together. The name may
/// have wishes of Problem: "torus/lanes=6/pieces=16:1M-". Or it is "file:PATH", a schedule in MSCCL's XML
/// or the library's JSON, which serves communicators of as many ranks as it is for:
/// "file:/etc/tamaki/ring8.xml:1M-".
struct SizeRule {
  std::string algorithm;                                   // "file" for those
  std::string file = {};                                   // PATH
  std::shared_ptr<const LoadedSchedule> loaded = nullptr;  // by load_files()
  int lanes = 0, pieces = 0, radix = 0;                    // wishes; 0: the library's
  std::uint64_t from = 0;
  std::uint64_t to = UINT64_MAX;
};

/// "TAMAKI_REDUCE_SCATTER": the variable of a collective's rules.
std::string rules_variable(Collective collective);

/// Parses "direct:0-16K,ring:16K-". A name alone serves every size. `direct` for allreduce means
/// direct_one_shot and direct_two_shot, each where it is better. Errors name the text; unknown names list
/// those that exist.
Result<std::vector<SizeRule>> parse_rules(Collective collective, std::string_view text);

/// Reads and proves the schedules that rules name. Errors: as load_schedule().
Status load_files(Collective collective, std::vector<SizeRule>* rules);

struct Question {
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;  // n, see SizeRule
  int ranks = 1;
  int root = 0;
  bool commutative = true;
  bool reproducible = false;
  bool uneven = false;    // blocks of different sizes, known to all ranks
  bool pairwise = false;  // blocks whose sizes only the pair concerned knows; `bytes` is then ignored
  int lanes = 0;          // wish, 0: chosen
  const Topology* topology = nullptr;
  const std::vector<SizeRule>* rules = nullptr;
  Costs* costs = nullptr;
};

/// An algorithm, or a schedule that was loaded.
struct Choice {
  const Algorithm* algorithm = nullptr;
  Problem problem = {};
  std::shared_ptr<const LoadedSchedule> loaded = nullptr;
  /// "ring", "file:/etc/tamaki/ring8.xml".
  std::string name() const {
    return loaded != nullptr ? "file:" + loaded->path : std::string(algorithm->name);
  }
};

/// Errors: a rule of the user names an algorithm that cannot serve the call (with its reason).
Result<Choice> select(const Question& question);

/// What select() weighs, for people: all that is known of each candidate for this call.
struct Consideration {
  Candidate candidate = {};
  double seconds = 0;  // 0: not known
  Estimate::Origin origin = Estimate::Origin::simulated;
  std::string why_not = {};  // it cannot serve the call, or its costs are not known
};
/// Those that can serve the call first, cheapest first.
std::vector<Consideration> considerations(const Question& question);
/// The rule of the user that decides, or null.
const SizeRule* deciding_rule(const Question& question);

}  // namespace tamaki
