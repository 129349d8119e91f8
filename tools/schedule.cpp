// tamaki draw and tamaki print: schedules for people.
#include <fmt/format.h>

#include <memory>

#include "arguments.hpp"
#include "base/options.hpp"
#include "command.hpp"
#include "output_file.hpp"
#include "problem_set.hpp"
#include "schedule/draw.hpp"
#include "schedule/fuse.hpp"
#include "schedule/goal.hpp"
#include "schedule/json.hpp"
#include "schedule/msccl.hpp"
#include "schedule/print.hpp"
#include "verify/places.hpp"

namespace tamaki::tools {
namespace {

struct ScheduleArguments {
  std::string collective, algorithm, file, topology, output = "-", form = "text";
  std::string bytes = "1M";
  Problem problem{.ranks = 4};
  int rank = -1;
  bool fused = false, compact = false;
};

constexpr std::int64_t kMostPrintedSteps = 1'000'000;  // about 100 MB of text

constexpr const char* kDrawFooter = R"(
Examples:
  tamaki draw allreduce ring -n 4 -o ring.svg
  tamaki draw allreduce double_binary_tree -n 8 --pieces 4 -o tree.svg
  tamaki draw --file schedule.json -o schedule.svg

Exit status: 0 in order, 2 wrong usage (also: the algorithm refuses the problem), 3 a file
cannot be read or written.)";

constexpr const char* kPrintFooter = R"(
Examples:
  tamaki print allreduce ring -n 4
  tamaki print allgather bruck -n 5 --rank 2 --compact
  tamaki print reduce knomial -n 8 --root 3 --form json -o reduce.json

Exit status: 0 in order, 2 wrong usage (also: the algorithm refuses the problem), 3 a file
cannot be read or written.)";

void add_schedule_options(CLI::App* sub, const std::shared_ptr<ScheduleArguments>& a) {
  auto* collective = sub->add_option("collective", a->collective, "e.g. allreduce")->check(not_empty());
  auto* algorithm = sub->add_option("algorithm", a->algorithm, "e.g. ring")->check(not_empty());
  auto* file =
      sub->add_option("--file", a->file, "the schedule of a JSON or MSCCL XML file (- for stdin) instead")
          ->check(not_empty());
  file->excludes(collective)->excludes(algorithm);
  const auto problem = [&](const char* name, int* value, const CLI::Validator& range, const char* help) {
    file->excludes(sub->add_option(name, *value, help)->transform(range)->capture_default_str());
  };
  problem("-n,--ranks", &a->problem.ranks, whole_number(1, kMostDescribed), "number of ranks");
  sub->add_option("--topology", a->topology,
                  "where the ranks are, e.g. torus:4x4x2, hosts:4+4+2, rails:4x8")
      ->check(not_empty())
      ->excludes(file)
      ->excludes("--ranks");
  problem("--root", &a->problem.root, whole_number(0, kMostDescribed - 1), "root of rooted collectives");
  problem("--lanes", &a->problem.lanes, whole_number(1, 64),
          "independent streams, where the algorithm has them");
  problem("--radix", &a->problem.radix, whole_number(2, 1024), "k of k-nomial trees, radix of Bruck");
  problem("--pieces", &a->problem.pieces, whole_number(1, 1024),
          "chunks a lane or block, for algorithms that pipeline");
  sub->add_flag("--fused", a->fused, "after the fusion pass");
  sub->add_option("-o,--output", a->output, "file, or - for stdout")
      ->check(not_empty())
      ->capture_default_str();
}

Result<std::vector<Program>> schedule_of(ScheduleArguments* a) {
  Result<std::vector<Program>> programs;
  if (!a->file.empty()) {
    programs = read_schedule(a->file);
  } else {
    if (a->collective.empty() || a->algorithm.empty())
      return fail(Code::invalid_argument, "a collective and an algorithm, or --file, must be given");
    Result<std::vector<const Algorithm*>> found = find_algorithms(a->collective, a->algorithm);
    if (!found) return pass(std::move(found));
    if (found->size() != 1)
      return fail(
          Code::invalid_argument,
          fmt::format("\"{} {}\" names {} schedules; one collective and one algorithm must be given",
                      a->collective, a->algorithm, found->size()));
    a->problem.collective = found->front()->collective;
    if (a->topology.empty()) {
      programs = build_schedule(*found->front(), a->problem);
    } else {
      std::string error;
      const Topology topology = parse_place(a->topology, &error);
      if (!error.empty()) return fail(Code::invalid_argument, "--topology " + error);
      a->problem.ranks = topology.ranks();
      programs = build_schedule(*found->front(), a->problem, topology);
    }
  }
  if (programs && a->fused)
    for (Program& program : *programs) program = fuse(program);
  return programs;
}

std::int64_t steps_of(std::span<const Program> programs) {
  std::int64_t steps = 0;
  for (const Program& program : programs)
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane)
      steps += expanded_steps(program, static_cast<std::int32_t>(lane));
  return steps;
}

Result<std::string> draw(ScheduleArguments* a) {
  const Result<std::vector<Program>> programs = schedule_of(a);
  if (!programs) return tl::unexpected<Error>(programs.error());
  const std::int64_t steps = steps_of(*programs), ranks = static_cast<std::int64_t>(programs->size());
  if (ranks > kMostDrawnRanks || steps > kMostDrawnSteps)
    return fail(
        Code::invalid_argument,
        fmt::format("{} ranks with {} steps are more than a picture holds; at most {} ranks with {} steps",
                    ranks, steps, kMostDrawnRanks, kMostDrawnSteps));
  return draw_svg(*programs);
}

Result<std::string> print_text(ScheduleArguments* a) {
  Result<std::vector<Program>> programs = schedule_of(a);
  if (!programs) return pass(std::move(programs));
  if (a->rank >= static_cast<int>(programs->size()))
    return fail(Code::invalid_argument,
                fmt::format("--rank {} is not in 0..{}", a->rank, programs->size() - 1));
  std::span<const Program> shown(*programs);
  if (a->rank >= 0) shown = shown.subspan(static_cast<std::size_t>(a->rank), 1);
  if (a->form == "json") return (a->rank >= 0 ? to_json(shown[0], 1) : schedule_to_json(shown, 1)) + "\n";
  if (a->form == "msccl" || a->form == "goal") {
    if (a->rank >= 0)
      return fail(Code::invalid_argument,
                  fmt::format("--form {} is of all ranks, not of --rank {}", a->form, a->rank));
    if (a->form == "msccl") return schedule_to_msccl(shown);
    const Result<std::uint64_t> bytes = parse_bytes(a->bytes);
    if (!bytes) return fail(Code::invalid_argument, "--bytes: " + bytes.error().message);
    return schedule_to_goal(shown, {.bytes = *bytes});
  }
  const std::int64_t steps = steps_of(shown);
  if (!a->compact && steps > kMostPrintedSteps)
    return fail(Code::invalid_argument,
                fmt::format("{} steps are more than is printed ({}); take --compact, --rank or fewer ranks",
                            steps, kMostPrintedSteps));
  const auto loops = a->compact ? PrintLoops::compact : PrintLoops::unrolled;
  return a->rank >= 0 ? print(shown[0], loops) : print(shown, loops);
}

/// Opens the output before the schedule is made, so that a wrong path is known first.
template <class Make>
int make_and_write(const char* subcommand, const std::string& path, const Make& make) {
  OutputFile output;
  if (Status opened = output.open("--output", path); !opened)
    return report_error(subcommand, opened.error());
  const Result<std::string> text = make();
  if (!text) return report_error(subcommand, text.error());
  const Status written = output.write(*text);
  return written ? kOk : report_error(subcommand, written.error());
}

}  // namespace

void add_draw(CLI::App& app, int* status) {
  auto a = std::make_shared<ScheduleArguments>();
  CLI::App* sub = app.add_subcommand("draw", "Draw a schedule in space and time, as SVG");
  sub->footer(kDrawFooter);
  add_schedule_options(sub, a);
  sub->callback([=] { *status = make_and_write("draw", a->output, [&] { return draw(a.get()); }); });
}

void add_print(CLI::App& app, int* status) {
  auto a = std::make_shared<ScheduleArguments>();
  CLI::App* sub = app.add_subcommand("print", "Print a schedule as text, JSON, MSCCL XML or GOAL");
  sub->footer(kPrintFooter);
  add_schedule_options(sub, a);
  sub->add_option("--form", a->form, "text, json, msccl (XML for MSCCL) or goal (for LogGOPSim)")
      ->check(CLI::IsMember({"text", "json", "msccl", "goal"}))
      ->capture_default_str();
  sub->add_option("--rank", a->rank, "only this rank's program")
      ->transform(whole_number(0, kMostDescribed - 1));
  sub->add_option("--bytes", a->bytes, "size of the message, for --form goal")
      ->check(not_empty())
      ->capture_default_str();
  sub->add_flag("--compact", a->compact, "loops as loops, not unrolled");
  sub->callback([=] { *status = make_and_write("print", a->output, [&] { return print_text(a.get()); }); });
}

}  // namespace tamaki::tools
