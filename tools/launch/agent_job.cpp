#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

#include "launch/agent.hpp"

namespace tamaki::tools {
namespace {

/// Position of `cpu` among the hardware threads of its core (0: the first).
int thread_of_core(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string text;
  std::getline(file, text);
  int position = 0;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int low = 0, high = 0;
    auto r = std::from_chars(at, end, low);
    if (r.ec != std::errc{}) break;
    high = low;
    if (r.ptr < end && *r.ptr == '-') r = std::from_chars(r.ptr + 1, end, high);
    if (cpu <= high) return position + std::max(0, cpu - low);
    position += high - low + 1;
    at = r.ptr + 1;
  }
  return 0;
}

}  // namespace

std::string encode_job(const AgentJob& job) {
  std::string text;
  const auto add = [&](std::string_view field) {
    text += field;
    text += '\0';
  };
  for (const auto& word : job.program) add("argument=" + word);
  for (const auto& line : job.environment) add("environment=" + line);
  add("directory=" + job.directory);
  add(fmt::format("ranks={}", job.ranks));
  add(fmt::format("first_rank={}", job.first_rank));
  add(fmt::format("local_ranks={}", job.local_ranks));
  add(fmt::format("first_local={}", job.first_local));
  add(fmt::format("local_size={}", job.local_size));
  add(fmt::format("bind={}", static_cast<int>(job.bind)));
  return text;
}

Result<AgentJob> decode_job(std::string_view text) {
  AgentJob job;
  job.local_ranks = 0;
  while (!text.empty()) {
    const auto end = text.find('\0');
    if (end == std::string_view::npos) return fail(Code::invalid_argument, "the job's text is cut off");
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(end + 1);
    const auto equals = field.find('=');
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : field.substr(equals + 1);
    int number = 0;
    std::from_chars(value.data(), value.data() + value.size(), number);
    if (name == "argument") job.program.emplace_back(value);
    else if (name == "environment") job.environment.emplace_back(value);
    else if (name == "directory") job.directory = value;
    else if (name == "ranks") job.ranks = number;
    else if (name == "first_rank") job.first_rank = number;
    else if (name == "local_ranks") job.local_ranks = number;
    else if (name == "first_local") job.first_local = number;
    else if (name == "local_size") job.local_size = number;
    else if (name == "bind") job.bind = static_cast<Bind>(number);
    else return fail(Code::invalid_argument, fmt::format("the job has an unknown field \"{}\": another version of tamaki?", name));
  }
  if (job.program.empty() || job.local_ranks < 1)
    return fail(Code::invalid_argument, "the job names no program or no ranks");
  return job;
}

std::vector<int> cores_for(Bind bind, int local_size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (bind == Bind::none || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  if (bind == Bind::automatic && local_size > CPU_COUNT(&allowed)) return {};
  std::vector<std::pair<int, int>> order;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) order.emplace_back(thread_of_core(cpu), cpu);
  std::sort(order.begin(), order.end());
  std::vector<int> cores;
  for (const auto& [thread, cpu] : order) cores.push_back(cpu);
  return cores;
}

}  // namespace tamaki::tools
