// tamaki explain: which algorithm would serve a collective, what the others would cost, and why.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "communicator/control.hpp"
#include "communicator/found_machine.hpp"
#include "output_file.hpp"
#include "problem_set.hpp"
#include "select/select.hpp"
#include "select/tuning.hpp"
#include "simulate/sweep.hpp"
#include "topology/recognize.hpp"

namespace tamaki::tools {
namespace {

struct ExplainArguments {
  std::string collective, cluster, bytes = "64..1G*4", order = "slot", rules, tuning, save, json;
  int ranks = 0, root = 0, jobs = 0, lanes = 0;
  bool reproducible = false, quiet = false;
};

constexpr const char* kFooter = R"(
With one size, every algorithm is listed with its time and why it is not chosen; with several, the
choice at each and the sizes at which it changes. Times are simulated, or measured where a tuning
table has them (tamaki perf --tune); rules of the user (--rules, else TAMAKI_ALLREDUCE and the like)
come before both.

Examples:
  tamaki explain allreduce --bytes 64M --cluster fugaku:48x6x48
  tamaki explain allreduce --cluster sakuraone                    where the choice changes
  tamaki explain allgather -n 8                                   on this machine
  tamaki explain allreduce --bytes 1G --cluster fugaku:48x6x48 --rules torus:100M-
  tamaki explain allreduce --cluster fugaku:24x6x24 --save tuning.json
                          jobs with TAMAKI_TUNING=tuning.json then do not simulate at start

Exit status: 0 in order, 2 wrong usage (also: nothing can serve), 3 a file cannot be read or written.)";

/// Everything that select() looks at.
struct Ground {
  SweepOptions sweep;
  std::string name;           // of the machine, for people
  std::vector<double> asked;  // sizes
  std::unique_ptr<Costs> costs;
  std::vector<SizeRule> rules;
  std::string rules_from;  // "--rules" or "TAMAKI_ALLREDUCE"
  std::string tuning;      // path of the table, "" for none
  bool measured = false;   // it has rows for this
};

/// The ranks on --cluster, or on this host.
Status lay_ranks_out(const ExplainArguments& a, SweepOptions* sweep) {
  if (!a.cluster.empty()) return lay_out(a.cluster, a.ranks, a.order, 0, sweep);
  RankIdentity self = own_identity();
  find_surroundings(&self);
  self.numa = -1;  // others may be elsewhere
  const int ranks = a.ranks > 0 ? a.ranks : std::max(2, static_cast<int>(self.cores));
  FoundMachine found = found_machine(std::vector<RankIdentity>(static_cast<std::size_t>(ranks), self));
  sweep->machine = std::move(found.machine);
  sweep->placement = std::move(found.placement);
  recognize_ranks(sweep);
  return {};
}

Result<Ground> interpret(const ExplainArguments& a) {
  const Result<const Options*> settings = options();
  if (!settings) return tl::unexpected<Error>(settings.error());
  Ground ground;
  SweepOptions& sweep = ground.sweep;
  if (split_list(a.collective).size() != 1)
    return fail(Code::invalid_argument, fmt::format("\"{}\" must be one collective", a.collective));
  Result<std::vector<const Algorithm*>> algorithms = find_algorithms(a.collective, "");
  if (!algorithms) return pass(std::move(algorithms));
  sweep.algorithms = std::move(*algorithms);
  const Collective collective = sweep.algorithms.front()->collective;
  if (Status laid = lay_ranks_out(a, &sweep); !laid) return pass(std::move(laid));
  if (a.root >= sweep.placement.size())
    return fail(Code::invalid_argument,
                fmt::format("--root {} is not in 0..{}", a.root, sweep.placement.size() - 1));
  sweep.root = a.root;
  Result<std::vector<double>> sizes = parse_sizes(a.bytes, "--bytes");
  if (!sizes) return pass(std::move(sizes));
  // What communicators simulate: the sizes of the grid beside those asked for.
  const std::vector<double> first = sizes_beside(collective, sizes->front()),
                            last = sizes_beside(collective, sizes->back());
  for (const double size : curve_sizes(collective))
    if (!a.save.empty() || (size >= first.front() && size <= last.back())) sweep.sizes.push_back(size);
  ground.asked = collective == Collective::barrier ? std::vector<double>{0} : std::move(*sizes);
  sweep.wishes = choice_wishes(sweep.topology);
  ground.name = a.cluster.empty() ? "this machine" : sweep.machine.name;
  std::vector<std::int32_t> on_host(static_cast<std::size_t>(sweep.topology.ranks()));
  std::int32_t most = 1;
  for (const std::int32_t host : sweep.topology.host_of_rank)
    most = std::max(most, ++on_host[static_cast<std::size_t>(host)]);
  const CostOptions costs{.slot_bytes = default_slot_bytes(most),
                          .alike = a.cluster.empty() ? CostOptions::kGuessedAlike : CostOptions().alike};
  sweep.slot_bytes = costs.slot_bytes;
  sweep.threads = a.jobs > 0 ? a.jobs : allowed_cores();
  ground.costs = std::make_unique<Costs>(sweep.machine, sweep.placement, sweep.topology, costs);

  std::string text = a.rules;
  ground.rules_from = "--rules";
  if (text.empty()) {
    ground.rules_from = rules_variable(collective);
    if (const char* value = std::getenv(ground.rules_from.c_str()); value != nullptr) text = value;
  }
  Result<std::vector<SizeRule>> rules = parse_rules(collective, text);
  if (!rules) return fail(rules.error().code, ground.rules_from + ": " + rules.error().message);
  if (const Status loaded = load_files(collective, &*rules); !loaded)
    return fail(loaded.error().code, ground.rules_from + ": " + loaded.error().message);
  ground.rules = std::move(*rules);
  ground.tuning = tuning_path(a.tuning.empty() ? (*settings)->tuning : a.tuning);
  return ground;
}

Question question_of(const ExplainArguments& a, const Ground& ground, double bytes) {
  return {.collective = ground.sweep.algorithms.front()->collective,
          .bytes = static_cast<std::uint64_t>(bytes),
          .ranks = ground.sweep.placement.size(),
          .root = a.root,
          .reproducible = a.reproducible,
          .lanes = a.lanes,
          .topology = &ground.sweep.topology,
          .rules = &ground.rules,
          .costs = ground.costs.get()};
}

/// The considered candidate that a choice is, for its parameters and time.
Consideration considered(const std::vector<Consideration>& all, const Choice& choice) {
  for (const Consideration& c : all)
    if (c.candidate.is(choice.algorithm, choice.problem)) return c;
  return {.candidate = {.algorithm = choice.algorithm, .problem = choice.problem}};
}

std::string title(const Candidate& c) {
  const std::string parameters = c.parameters();
  return parameters.empty() ? std::string(c.algorithm->name)
                            : fmt::format("{} ({})", c.algorithm->name, parameters);
}

struct Answer {
  double bytes = 0;
  Consideration chosen = {};
  std::string error = {};
  const SizeRule* rule = nullptr;
  std::vector<Consideration> all = {};
  /// "torus (lanes 6)", "file:/etc/tamaki/ring8.xml".
  std::string title() const {
    return chosen.candidate.algorithm != nullptr ? tools::title(chosen.candidate) : "file:" + rule->file;
  }
};

Answer answer(const ExplainArguments& a, const Ground& ground, double bytes) {
  const Question question = question_of(a, ground, bytes);
  Answer made{.bytes = bytes, .rule = deciding_rule(question), .all = considerations(question)};
  const Result<Choice> choice = select(question);
  if (choice)
    made.chosen = considered(made.all, *choice);
  else
    made.error = choice.error().message;
  return made;
}

/// The size from which on `above` is chosen, between two sizes at which choices differ.
double boundary(const ExplainArguments& a, const Ground& ground, const Answer& below, const Answer& above) {
  auto low = static_cast<std::uint64_t>(below.bytes), high = static_cast<std::uint64_t>(above.bytes);
  while (high - low > std::max<std::uint64_t>(1, low / 1000)) {
    const std::uint64_t middle = low + (high - low) / 2;
    const Result<Choice> choice = select(question_of(a, ground, static_cast<double>(middle)));
    (choice && above.chosen.candidate.is(choice->algorithm, choice->problem) ? high : low) = middle;
  }
  return static_cast<double>(high);
}

std::string why_text(const Ground& ground, const Answer& answer) {
  if (answer.rule != nullptr) return fmt::format("a rule of {} says so", ground.rules_from);
  if (!(answer.chosen.seconds > 0))
    return "costs are not known; it is the first of the order of preference that can serve";
  const auto first = std::find_if(answer.all.begin(), answer.all.end(),
                                  [](const Consideration& c) { return c.why_not.empty(); });
  if (first != answer.all.end() && first->seconds < answer.chosen.seconds)
    return fmt::format("preferred among those within {:.0f} % of the least time",
                       100 * (ground.costs->alike() - 1));
  return "the least time of those that can serve";
}

std::string header(const Ground& ground) {
  std::string text =
      fmt::format("{} on {}: {} ranks ({})\n", name_of(ground.sweep.algorithms.front()->collective),
                  ground.name, ground.sweep.placement.size(), ground.sweep.structure);
  if (ground.measured) text += fmt::format("tuning table: {}\n", ground.tuning);
  return text;
}

std::string full_table(const Ground& ground, const Answer& answer) {
  std::string text = header(ground);
  if (!answer.error.empty())
    return text + fmt::format("{}: no choice: {}\n", short_bytes(answer.bytes), answer.error);
  text += fmt::format("{}: {}{}: {}\n\n", short_bytes(answer.bytes), answer.title(),
                      answer.chosen.seconds > 0 ? ", " + short_time(answer.chosen.seconds) : "",
                      why_text(ground, answer));
  text += fmt::format("  {:<22} {:<24} {:>10} {:>8}  {}\n", "algorithm", "with", "time", "x chosen", "");
  std::vector<std::pair<const Algorithm*, std::string>> refused;
  for (const Consideration& c : answer.all) {
    if (!c.why_not.empty()) {
      const bool known = std::any_of(answer.all.begin(), answer.all.end(), [&](const Consideration& other) {
        return other.candidate.algorithm == c.candidate.algorithm && other.why_not.empty();
      });
      const bool listed = std::any_of(refused.begin(), refused.end(),
                                      [&](const auto& r) { return r.first == c.candidate.algorithm; });
      if (!known && !listed) refused.emplace_back(c.candidate.algorithm, c.why_not);
      continue;
    }
    text += fmt::format(
        "{} {:<22} {:<24} {:>10} {:>8}  {}\n",
        c.candidate.is(answer.chosen.candidate.algorithm, answer.chosen.candidate.problem) ? '*' : ' ',
        c.candidate.algorithm->name, c.candidate.parameters(), short_time(c.seconds),
        answer.chosen.seconds > 0 ? fmt::format("{:.2f}", c.seconds / answer.chosen.seconds) : "-",
        name_of(c.origin));
  }
  for (const auto& [algorithm, why] : refused)
    text += fmt::format("  {:<22} no: {}\n", algorithm->name, why);
  return text;
}

std::string choice_table(const ExplainArguments& a, const Ground& ground,
                         const std::vector<Answer>& answers) {
  std::string text = header(ground) + fmt::format("{:>8}  {:<40} {:>10}  {:<10} {}\n", "bytes", "chosen",
                                                  "time", "", "next");
  for (const Answer& at : answers) {
    if (!at.error.empty()) {
      text += fmt::format("{:>8}  no choice: {}\n", short_bytes(at.bytes), at.error);
      continue;
    }
    std::string next;
    for (const Consideration& c : at.all)
      if (c.why_not.empty() && c.candidate.algorithm != at.chosen.candidate.algorithm) {
        next = fmt::format("{}, {}", title(c.candidate), short_time(c.seconds));
        break;
      }
    text += fmt::format("{:>8}  {:<40} {:>10}  {:<10} {}\n", short_bytes(at.bytes), at.title(),
                        at.chosen.seconds > 0 ? short_time(at.chosen.seconds) : "-",
                        at.rule != nullptr      ? "by a rule"
                        : at.chosen.seconds > 0 ? std::string(name_of(at.chosen.origin))
                                                : "preferred",
                        next);
  }
  for (std::size_t i = 1; i < answers.size(); ++i) {
    if (!answers[i - 1].error.empty() || !answers[i].error.empty()) continue;
    const Candidate& above = answers[i].chosen.candidate;
    if (answers[i - 1].chosen.candidate.is(above.algorithm, above.problem)) continue;
    text += fmt::format("from {:>6} on: {} instead of {}\n",
                        short_bytes(boundary(a, ground, answers[i - 1], answers[i])), answers[i].title(),
                        answers[i - 1].title());
  }
  return text;
}

std::string answers_json(const Ground& ground, const std::vector<Answer>& answers) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  const auto candidate_json = [](const Consideration& c) {
    Json j = {{"algorithm", c.candidate.algorithm->name},
              {"lanes", c.candidate.problem.lanes},
              {"pieces", c.candidate.problem.pieces},
              {"radix", c.candidate.problem.radix}};
    if (c.seconds > 0) {
      j["seconds"] = c.seconds;
      j["origin"] = name_of(c.origin);
    }
    if (!c.why_not.empty()) j["refused"] = c.why_not;
    return j;
  };
  for (const Answer& at : answers) {
    Json j = {{"bytes", at.bytes}};
    if (at.error.empty()) {
      j["chosen"] = at.chosen.candidate.algorithm != nullptr ? candidate_json(at.chosen)
                                                             : Json({{"algorithm", at.title()}});
      j["why"] = why_text(ground, at);
    } else {
      j["error"] = at.error;
    }
    for (const Consideration& c : at.all) j["considered"].push_back(candidate_json(c));
    all.push_back(std::move(j));
  }
  return Json({{"collective", name_of(ground.sweep.algorithms.front()->collective)},
               {"cluster", ground.name},
               {"ranks", ground.sweep.placement.size()},
               {"structure", ground.sweep.structure},
               {"answers", std::move(all)}})
             .dump(2) +
         "\n";
}

Status save(const Ground& ground, const std::vector<Curve>& curves, const std::string& path) {
  TuningTable table;
  for (const Curve& curve : curves)
    if (!curve.points.empty())
      table.rows.push_back(tuning_row(*ground.costs, curve, Estimate::Origin::simulated));
  return merge_tuning(path, table);
}

int run_explain(const ExplainArguments& a) {
  const auto failed = [](const Error& error) { return report_error("explain", error); };
  Result<Ground> ground = interpret(a);
  if (!ground) return failed(ground.error());
  TuningTable table;
  if (!ground->tuning.empty()) {
    Result<TuningTable> read = read_tuning(ground->tuning);
    if (!read) return failed(read.error());
    table = std::move(*read);
  }
  OutputFile json;
  if (Status s = json.open("--json", a.json); !s) return failed(s.error());
  const bool tell = !a.quiet && isatty(STDERR_FILENO) != 0;
  Result<Sweep> sweep = run_sweep(ground->sweep, [&](const std::string& now, int done, int all) {
    if (tell) fmt::print(stderr, "\r\033[K{} of {} done; {}", done, all, now);
  });
  if (tell) fmt::print(stderr, "\r\033[K");
  if (!sweep) return failed(sweep.error());
  if (!a.save.empty())
    if (Status saved = save(*ground, sweep->curves, a.save == "auto" ? tuning_path("auto") : a.save);
        !saved)
      return failed(saved.error());
  apply_tuning(table, ground->costs.get());
  const Collective collective = ground->sweep.algorithms.front()->collective;
  ground->costs->set_simulated(collective, std::move(sweep->curves));
  ground->measured = ground->costs->has_measured(collective);

  std::vector<Answer> answers;
  for (const double bytes : ground->asked) answers.push_back(answer(a, *ground, bytes));
  if (a.json != "-")
    fmt::print("{}",
               answers.size() == 1 ? full_table(*ground, answers[0]) : choice_table(a, *ground, answers));
  if (Status s = json.write(a.json.empty() ? "" : answers_json(*ground, answers)); !s)
    return failed(s.error());
  return std::all_of(answers.begin(), answers.end(), [](const Answer& at) { return at.error.empty(); })
             ? kOk
             : kUsage;
}

}  // namespace

void add_explain(CLI::App& app, int* status) {
  auto a = std::make_shared<ExplainArguments>();
  CLI::App* sub =
      app.add_subcommand("explain", "Say which algorithm would be chosen, what the others cost, and why");
  sub->footer(kFooter);
  sub->add_option("collective", a->collective, "e.g. allreduce")->required()->check(not_empty());
  sub->add_option("-b,--bytes", a->bytes,
                  "sizes: 64M, 1K,1M, 1K..4G (doubling), 1K..4G*4; of the vector, or of all ranks' blocks")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_option("--cluster", a->cluster, "the machine, as in `tamaki topo --help` (default: this one)")
      ->check(not_empty());
  sub->add_option("-n,--ranks", a->ranks, "ranks (default: all that the machine takes; here: one a core)")
      ->transform(whole_number(1, kMostDescribed));
  sub->add_option("--order", a->order,
                  "slot: fill a host, then the next; host: one rank a host, round and round")
      ->check(CLI::IsMember({"slot", "host"}))
      ->capture_default_str();
  sub->add_option("--root", a->root, "root of rooted collectives")
      ->transform(whole_number(0, kMostDescribed - 1))
      ->capture_default_str();
  sub->add_flag("--reproducible", a->reproducible, "as with TAMAKI_REPRODUCIBLE=1");
  sub->add_option("--lanes", a->lanes, "as TAMAKI_LANES; 0: chosen")
      ->transform(whole_number(0, 64))
      ->capture_default_str();
  sub->add_option("--rules", a->rules,
                  "rules of the user, e.g. torus/lanes=6:100M- or file:PATH (default: the environment's)")
      ->check(not_empty());
  sub->add_option("--tuning", a->tuning, "tuning table: a path, auto or off (default: TAMAKI_TUNING)")
      ->check(not_empty());
  sub->add_option("--save", a->save,
                  "add the simulated times to this tuning table; auto: the one that jobs read")
      ->check(not_empty());
  sub->add_option("--json", a->json, "answers as JSON; -: to stdout")->check(not_empty());
  sub->add_option("-j,--jobs", a->jobs, "threads (default: one a core)")->transform(whole_number(1, 1024));
  sub->add_flag("-q,--quiet", a->quiet, "no progress on a terminal");
  sub->callback([=] { *status = run_explain(*a); });
}

}  // namespace tamaki::tools
