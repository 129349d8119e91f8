#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/options.hpp"
#include "execute/kernels.hpp"
#include "info/facts.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::tools {
namespace {

std::string core_list() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "unknown";
  std::string list;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) ++last;
    list += fmt::format("{}{}", list.empty() ? "" : ",", cpu);
    if (last > cpu) list += fmt::format("-{}", last);
    cpu = last;
  }
  return fmt::format("{} ({})", CPU_COUNT(&allowed), list);
}

/// CPU time a control group allows, in cores; "" where it is not limited.
std::string group_limit() {
  const std::string line = first_line("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (std::sscanf(line.c_str(), "%lf %lf", &quota, &period) == 2 && period > 0) return fmt::format("{:.2f} cores", quota / period);
  return {};
}

void add_hwloc(std::vector<Fact>* facts) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0) {
    facts->push_back({"topology", "hwloc could not read it"});
    return;
  }
  const auto number = [&](hwloc_obj_type_t type) { return hwloc_get_nbobjs_by_type(topology, type); };
  facts->push_back({"cores", fmt::format("{} packages, {} cores, {} hardware threads, {} NUMA nodes", number(HWLOC_OBJ_PACKAGE),
                                         number(HWLOC_OBJ_CORE), number(HWLOC_OBJ_PU), number(HWLOC_OBJ_NUMANODE))});
  std::string caches;
  for (const auto& [type, name] : {std::pair{HWLOC_OBJ_L1CACHE, "L1d"}, {HWLOC_OBJ_L2CACHE, "L2"}, {HWLOC_OBJ_L3CACHE, "L3"}})
    if (const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0); cache != nullptr)
      caches += fmt::format("{}{} x {} {}", caches.empty() ? "" : ", ", number(type), format_bytes(cache->attr->cache.size), name);
  facts->push_back({"caches", caches.empty() ? "unknown" : caches});
  if (const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0); package != nullptr)
    if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel")) facts->push_back({"processor", model});
  hwloc_topology_destroy(topology);
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Section build_section() {
  Section s{"build", {}};
  s.facts.push_back({"version", fmt::format("{}.{}.{}", TMK_MAJOR, TMK_MINOR, TMK_PATCH)});
#if defined(__clang__)
  s.facts.push_back({"compiler", "clang " __clang_version__});
#else
  s.facts.push_back({"compiler", "g++ " __VERSION__});
#endif
  s.facts.push_back({"build type", TAMAKI_BUILD_TYPE});
  s.facts.push_back({"sanitizer", TAMAKI_SANITIZER[0] == '\0' ? "none" : TAMAKI_SANITIZER});
  s.facts.push_back({"kernels", kernel_target()});
  return s;
}

Section machine_section() {
  Section s{"machine", {}};
  utsname system{};
  uname(&system);
  s.facts.push_back({"host", system.nodename});
  s.facts.push_back({"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)});
  add_hwloc(&s.facts);
  s.facts.push_back({"allowed cores", core_list()});
  if (const std::string limit = group_limit(); !limit.empty()) s.facts.push_back({"limit of the control group", limit});
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  s.facts.push_back({"memory", fmt::format("{:.1f} GiB, pages of {}", static_cast<double>(pages) * static_cast<double>(page) / (1 << 30), format_bytes(static_cast<std::uint64_t>(page)))});
  return s;
}

}  // namespace tamaki::tools
