// tamaki draw and tamaki print: schedules for people.
#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "problem_set.hpp"
#include "schedule/draw.hpp"
#include "schedule/fuse.hpp"
#include "schedule/json.hpp"
#include "schedule/print.hpp"

namespace tamaki::tools {
namespace {

struct ScheduleArguments {
  std::string collective, algorithm, file, output = "-", form = "text";
  Problem problem{.ranks = 4};
  int rank = -1;
  bool fused = false, compact = false;
};

constexpr const char* kDrawFooter = R"(
Examples:
  tamaki draw allreduce ring -n 4 -o ring.svg
  tamaki draw allreduce double_binary_tree -n 8 --pieces 4 -o tree.svg
  tamaki draw --file schedule.json -o schedule.svg

Exit status: 0 in order, 2 wrong usage (also: the algorithm refuses the problem), 3 runtime error.)";

constexpr const char* kPrintFooter = R"(
Examples:
  tamaki print allreduce ring -n 4
  tamaki print allgather bruck -n 5 --rank 2 --compact
  tamaki print reduce binomial -n 8 --root 3 --form json -o reduce.json

Exit status: 0 in order, 2 wrong usage (also: the algorithm refuses the problem), 3 runtime error.)";

void add_schedule_options(CLI::App* sub, const std::shared_ptr<ScheduleArguments>& a) {
  sub->add_option("collective", a->collective, "e.g. allreduce");
  sub->add_option("algorithm", a->algorithm, "e.g. ring");
  sub->add_option("--file", a->file, "the schedule of a JSON file (- for stdin) instead");
  sub->add_option("-n,--ranks", a->problem.ranks, "number of ranks")->check(CLI::Range(1, 65536))->capture_default_str();
  sub->add_option("--root", a->problem.root, "root of rooted collectives")->capture_default_str();
  sub->add_option("--lanes", a->problem.lanes, "independent streams, where the algorithm has them")->check(CLI::Range(1, 64))->capture_default_str();
  sub->add_option("--radix", a->problem.radix, "k of k-nomial trees, radix of Bruck")->check(CLI::Range(2, 1024))->capture_default_str();
  sub->add_option("--pieces", a->problem.pieces, "chunks a lane or block, for algorithms that pipeline")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_flag("--fused", a->fused, "after the fusion pass");
  sub->add_option("-o,--output", a->output, "file, or - for stdout")->capture_default_str();
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
    if (found->size() != 1) return fail(Code::invalid_argument, "one collective and one algorithm must be given");
    a->problem.collective = found->front()->collective;
    programs = build_schedule(*found->front(), a->problem);
  }
  if (programs && a->fused)
    for (Program& program : *programs) program = fuse(program);
  return programs;
}

int finish(const char* subcommand, const std::string& path, const std::string& text) {
  Status written = write_file(path, text);
  return written ? kOk : report_error(subcommand, written.error());
}

}  // namespace

void add_draw(CLI::App& app, int* status) {
  auto a = std::make_shared<ScheduleArguments>();
  CLI::App* sub = app.add_subcommand("draw", "Draw a schedule in space and time, as SVG");
  sub->footer(kDrawFooter);
  add_schedule_options(sub, a);
  sub->callback([=] {
    Result<std::vector<Program>> programs = schedule_of(a.get());
    *status = programs ? finish("draw", a->output, draw_svg(*programs)) : report_error("draw", programs.error());
  });
}

void add_print(CLI::App& app, int* status) {
  auto a = std::make_shared<ScheduleArguments>();
  CLI::App* sub = app.add_subcommand("print", "Print a schedule as text or JSON");
  sub->footer(kPrintFooter);
  add_schedule_options(sub, a);
  sub->add_option("--form", a->form, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  sub->add_option("--rank", a->rank, "only this rank's program")->check(CLI::NonNegativeNumber);
  sub->add_flag("--compact", a->compact, "loops as loops, not unrolled");
  sub->callback([=] {
    Result<std::vector<Program>> programs = schedule_of(a.get());
    if (programs && a->rank >= static_cast<int>(programs->size()))
      programs = fail(Code::invalid_argument, fmt::format("--rank {} is not in 0..{}", a->rank, programs->size() - 1));
    if (!programs) {
      *status = report_error("print", programs.error());
      return;
    }
    const auto loops = a->compact ? PrintLoops::compact : PrintLoops::unrolled;
    std::string text;
    if (a->form == "json")
      text = (a->rank >= 0 ? to_json((*programs)[static_cast<std::size_t>(a->rank)], 1) : schedule_to_json(*programs, 1)) + "\n";
    else
      text = a->rank >= 0 ? print((*programs)[static_cast<std::size_t>(a->rank)], loops) : print(std::span<const Program>(*programs), loops);
    *status = finish("print", a->output, text);
  });
}

}  // namespace tamaki::tools
