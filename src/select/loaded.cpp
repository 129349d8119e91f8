#include "select/loaded.hpp"

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <tuple>

#include "base/secret.hpp"
#include "schedule/file.hpp"
#include "schedule/json.hpp"
#include "verify/verify.hpp"

namespace tamaki {
namespace {

constexpr std::int32_t kMostCopies = 4096;  // chunks of an input that is copied

/// Which contents a path had.
using Version = std::tuple<dev_t, ino_t, off_t, time_t, long>;

/// Lets a program read its input from scratch, where another lane puts it before anything else is done:
/// what makes a schedule that was thought out of place right in place. False where it has loops, which no
/// file of MSCCL has, or very many chunks.
bool read_from_copy(Program* program) {
  const std::int32_t chunks = program->chunks_of(Buffer::input), base = program->scratch_chunks;
  for (const Lane& lane : program->lanes)
    for (const Block& block : lane.blocks)
      if (block.times != 1) return false;
  for (Operand& operand : program->operands)
    if (operand.kind == Operand::Kind::local && operand.buffer == Buffer::input) {
      operand.buffer = Buffer::scratch;
      operand.chunk += base;
    }
  program->scratch_chunks += chunks;
  // Every step waits for every copy: one whose chunk is empty, because the message is short, is left out
  // and orders nothing.
  if (chunks > kMostCopies) return false;
  std::vector<Dependency> dependencies;
  for (Step& step : program->steps) {
    const auto from = program->dependencies.begin() + step.first_dependency;
    step.first_dependency = static_cast<std::int32_t>(dependencies.size());
    dependencies.insert(dependencies.end(), from, from + step.dependencies);
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
      dependencies.push_back({static_cast<std::int32_t>(program->lanes.size()), chunk});
    step.dependencies = static_cast<std::uint16_t>(step.dependencies + chunks);
  }
  program->dependencies = std::move(dependencies);
  const auto begin = static_cast<std::int32_t>(program->steps.size());
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
    program->steps.push_back({.first_operand = static_cast<std::int32_t>(program->operands.size()),
                              .sources = 1,
                              .destinations = 1,
                              .extent = {.buffer = Buffer::input, .chunk = chunk}});
    program->operands.push_back({.buffer = Buffer::input, .chunk = chunk});
    program->operands.push_back({.buffer = Buffer::scratch, .chunk = base + chunk});
  }
  program->lanes.push_back({.blocks = {{.begin = begin, .end = begin + chunks}}});
  return true;
}

Result<std::shared_ptr<const LoadedSchedule>> load(const std::string& path, Collective collective) {
  Result<std::vector<Program>> programs = read_schedule(path);
  if (!programs) return pass(std::move(programs));
  const auto refused = [&](const std::string& why) {
    return fail(Code::invalid_argument, path + ": " + why);
  };
  if (programs->empty()) return refused("it has no program");
  const Program& first = programs->front();
  if (first.collective != collective)
    return refused("it is for " + std::string(name_of(first.collective)) + ", not for " +
                   std::string(name_of(collective)));
  if (first.ranks != static_cast<std::int32_t>(programs->size()))
    return refused("it has programs of " + std::to_string(programs->size()) + " of its " +
                   std::to_string(first.ranks) + " ranks");
  auto loaded = std::make_shared<LoadedSchedule>();
  const auto proof = [&](bool in_place) {
    return verify(*programs, {.in_place = in_place, .empty_chunks = true, .limit = 1});
  };
  Report out = proof(false), in = proof(true);
  if (out.ok() && !in.ok()) {
    bool changed = true;
    for (Program& program : *programs) changed = changed && read_from_copy(&program);
    if (!changed) return refused("it is not right in place: " + in.text());
    out = proof(false);
    in = proof(true);
  }
  if (!out.ok()) return refused("it is not right: " + out.text());
  if (!in.ok()) return refused("it is not right in place: " + in.text());
  loaded->uneven = out.uneven && in.uneven;
  loaded->keeps_order = out.ordered && in.ordered;
  const auto holds = [&](const VerifyOptions& options) { return verify(*programs, options).ok(); };
  loaded->direct = holds({.direct = true, .empty_chunks = true, .limit = 1});
  loaded->direct_in_place =
      loaded->direct && holds({.in_place = true, .direct = true, .empty_chunks = true, .limit = 1});
  std::string text;
  for (const Program& program : *programs) text += to_json(program);
  loaded->digest = digest_of(text);
  loaded->path = path;
  loaded->programs = std::move(*programs);
  return loaded;
}

}  // namespace

Result<std::shared_ptr<const LoadedSchedule>> load_schedule(const std::string& path,
                                                            Collective collective) {
  static std::mutex mutex;  // guards known
  static std::map<std::pair<std::string, Collective>,
                  std::pair<Version, std::shared_ptr<const LoadedSchedule>>>
      known;
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0) return fail_errno("reading " + path);
  const Version version{facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec,
                        facts.st_mtim.tv_nsec};
  const std::lock_guard lock(mutex);
  const auto found = known.find({path, collective});
  if (found != known.end() && found->second.first == version) return found->second.second;
  Result<std::shared_ptr<const LoadedSchedule>> loaded = load(path, collective);
  if (loaded) known[{path, collective}] = {version, *loaded};
  return loaded;
}

}  // namespace tamaki
