// What this process is to its peers.

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/secret.hpp"
#include "base/socket.hpp"
#include "communicator/control.hpp"
#include "topology/discover/discover.hpp"

namespace tamaki {
namespace {

/// First line of a file, or nothing.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string namespace_of(const char* kind) {
  struct stat facts {};
  if (::stat((std::string("/proc/self/ns/") + kind).c_str(), &facts) != 0) return "?";
  return std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
}

/// Start of this process in clock ticks since boot: field 22 of /proc/self/stat. With the pid, unique until reboot.
std::string start_time() {
  const std::string line = line_of("/proc/self/stat");
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));  // the name may hold anything
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return field;
}

/// "cpu.max" of one cgroup: quota and period in us; cores, or infinity.
double cores_of_cpu_max(const std::string& text) {
  std::istringstream in(text);
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return INFINITY;  // "max 100000"
  return quota / period;
}

/// The tightest CPU limit of this process' cgroups (v2, and v1's cpu.cfs_quota_us), in cores.
double cgroup_cores() {
  double cores = INFINITY;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    while (true) {  // a limit of any ancestor counts too
      const std::string under = path == "/" ? "" : path;
      if (v2) {
        cores = std::min(cores, cores_of_cpu_max(line_of("/sys/fs/cgroup" + under + "/cpu.max")));
      } else {
        const std::string folder = "/sys/fs/cgroup/" + controllers + under;
        cores = std::min(cores, cores_of_cpu_max(line_of(folder + "/cpu.cfs_quota_us") + " " +
                                                 line_of(folder + "/cpu.cfs_period_us")));
      }
      const auto slash = path.rfind('/');
      if (path.size() <= 1 || slash == std::string::npos) break;
      path = slash == 0 ? "/" : path.substr(0, slash);
    }
  }
  return cores;
}

/// Whether `path` of the unified hierarchy is a group of its own to the scheduler. The root is none.
bool shares_cores_out(const std::string& path) { return ::access(("/sys/fs/cgroup" + path + "/cpu.weight").c_str(), F_OK) == 0; }

void find_cores(RankIdentity* self) {
  // The mask's size is not known beforehand: machines with more than 1,024 cores refuse the plain cpu_set_t.
  int count = 0;
  for (std::size_t words = std::size(self->core_mask); words <= 1024 && count == 0; words *= 4) {
    std::vector<std::uint64_t> mask(words);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    const std::size_t bytes = words * sizeof(std::uint64_t);
    if (::sched_getaffinity(0, bytes, set) != 0) continue;
    count = CPU_COUNT_S(bytes, set);
    std::copy_n(mask.begin(), std::size(self->core_mask), self->core_mask);
  }
  const double limit = std::ceil(cgroup_cores() - 0.01);
  self->cores = std::max(1, std::min<int>(count, limit < 1e6 ? static_cast<int>(limit) : count));
}

}  // namespace

std::string scheduling_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {  // v2: the innermost group that has the controller; the root of a container may have it
      while (!shares_cores_out(path) && !path.empty()) path.resize(path.rfind('/'));
      if (shares_cores_out(path)) return "cgroup " + path + "/";
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos && !path.empty()) {
      return "cgroup " + path + "/";
    }
  }
  // Autogroups are made whether or not they are in force.
  if (line_of("/proc/sys/kernel/sched_autogroup_enabled") != "1") return "root";
  const std::string autogroup = line_of("/proc/self/autogroup");  // "/autogroup-123 nice 0"
  return "autogroup " + autogroup.substr(0, autogroup.find(' '));
}

RankIdentity own_identity() {
  RankIdentity self;
  const std::string boot = line_of("/proc/sys/kernel/random/boot_id");
  char name[sizeof self.host_name] = {};
  if (::gethostname(name, sizeof name - 1) != 0) std::strcpy(name, "unknown");
  std::memcpy(self.host_name, name, sizeof name);
  // The same kernel (boot id), the same pids and the same files of /proc: then a peer's /proc/<pid>/fd and
  // process_vm_readv reach it, whatever the network looks like. Anything else may not work, so it is another host.
  // Without a boot id (a locked-down /proc) machine id and host name stand in for it.
  const std::string machine = boot.empty() ? line_of("/etc/machine-id") + name : boot;
  self.host = digest_of("host " + machine + " " + namespace_of("pid") + " " + namespace_of("user") + " " +
                        namespace_of("mnt"));
  self.pid = static_cast<std::int32_t>(::getpid());
  self.address_space =
      digest_of("process " + machine + " " + namespace_of("pid") + " " + std::to_string(self.pid) + " " + start_time());
  self.scheduling_group = digest_of("scheduling " + scheduling_group());
  find_cores(&self);
  return self;
}

void find_surroundings(RankIdentity* self) {
  if (::access("/sys/devices/system/node/node1", F_OK) == 0) self->numa = numa_of_this_process();
  const Result<std::vector<Interface>> chosen = chosen_interfaces();
  if (!chosen) return;  // tcp speaks of it
  std::set<std::string> names;
  for (const Interface& interface : *chosen)
    if (!interface.loopback) names.insert(interface.name);
  self->nics = static_cast<std::int32_t>(names.size());
  for (const std::string& name : names) {
    const double rate = std::atof(line_of("/sys/class/net/" + name + "/speed").c_str()) * 125e3;  // Mb/s; -1: not known
    if (rate > 0 && (self->nic_rate == 0 || rate < self->nic_rate)) self->nic_rate = rate;
  }
}

}  // namespace tamaki
