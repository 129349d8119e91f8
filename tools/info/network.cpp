#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/options.hpp"
#include "info/facts.hpp"
#include "info/settings.hpp"
#include "launch/launcher.hpp"
#include "perf/perf.hpp"

namespace tamaki::tools {
namespace {

int prefix_length(const unsigned char* mask, std::size_t bytes) {
  int bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) bits += __builtin_popcount(mask[i]);
  return bits;
}

std::string address_text(const ifaddrs& a) {
  char text[INET6_ADDRSTRLEN] = {};
  if (a.ifa_addr->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a.ifa_addr)->sin_addr, text, sizeof text);
    const auto* mask = reinterpret_cast<const sockaddr_in*>(a.ifa_netmask);
    return fmt::format("{}/{}", text, mask ? prefix_length(reinterpret_cast<const unsigned char*>(&mask->sin_addr), 4) : 32);
  }
  inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(a.ifa_addr)->sin6_addr, text, sizeof text);
  const auto* mask = reinterpret_cast<const sockaddr_in6*>(a.ifa_netmask);
  return fmt::format("{}/{}", text, mask ? prefix_length(mask->sin6_addr.s6_addr, 16) : 128);
}

/// Loads `library` in a process of its own (an MPI library may do anything on loading) and returns what it says of
/// itself, or "" where it is not there.
std::string ask_library(const char* library) {
  int answer[2];
  if (pipe(answer) != 0) return {};
  const pid_t child = fork();
  if (child < 0) return {};
  if (child == 0) {
    close(answer[0]);
    std::string text;
    if (void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      text = "found";
      using VersionFunction = int (*)(char*, int*);
      if (const auto version = reinterpret_cast<VersionFunction>(dlsym(handle, "MPI_Get_library_version")); version != nullptr) {
        static char buffer[8192];
        int length = 0;
        if (version(buffer, &length) == 0) text = buffer;
      }
    } else {
      const char* why = dlerror();
      // Not being there is the ordinary case; being there and not loadable is worth the reason.
      if (why != nullptr && std::strstr(why, "cannot open shared object file") == nullptr) text = std::string("cannot be loaded: ") + why;
    }
    text = text.substr(0, text.find('\n'));
    (void)!write(answer[1], text.data(), std::min<std::size_t>(text.size(), 1000));
    _exit(0);
  }
  close(answer[1]);
  char text[1024];
  std::string all;
  for (ssize_t n; (n = read(answer[0], text, sizeof text)) > 0;) all.append(text, static_cast<std::size_t>(n));
  close(answer[0]);
  waitpid(child, nullptr, 0);
  for (char& c : all)
    if (c == '\t') c = ' ';
  return all;
}

std::string preload_path(const std::string& name) {
  const Result<std::string> self = own_path();
  if (!self) return {};
  const std::string folder = self->substr(0, self->rfind('/'));
  for (const char* place : {"/../", "/../lib/", "/../lib/tamaki/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/", "/../lib64/", "/../bindings/mpi_preload/"}) {
    const std::string path = folder + place + name;
    if (access(path.c_str(), R_OK) != 0) continue;
    char resolved[4096];
    return realpath(path.c_str(), resolved) != nullptr ? resolved : path;
  }
  return {};
}

}  // namespace

Section network_section() {
  Section s{"network", {}};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    s.facts.push_back({"interfaces", std::string("cannot be listed: ") + std::strerror(errno)});
  } else {
    std::map<std::string, std::string> by_name;
    for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
      std::string& text = by_name[a->ifa_name];
      if (text.empty()) {
        text = (a->ifa_flags & IFF_UP) == 0 ? "down" : (a->ifa_flags & IFF_RUNNING) == 0 ? "no link" : "up";
        if (a->ifa_flags & IFF_LOOPBACK) text += ", loopback";
        const std::string folder = fmt::format("/sys/class/net/{}/", a->ifa_name);
        if (const std::string mtu = first_line(folder + "mtu"); !mtu.empty()) text += ", mtu " + mtu;
        const std::string speed = first_line(folder + "speed");
        if (!speed.empty() && speed[0] != '-') text += ", " + speed + " Mbit/s";
      }
      if (a->ifa_addr != nullptr && (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6)) text += ", " + address_text(*a);
    }
    freeifaddrs(list);
    for (const auto& [name, text] : by_name) s.facts.push_back({name, text});
  }
  std::string devices;
  DIR* folder = opendir("/sys/class/infiniband");
  while (folder != nullptr) {
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') devices += (devices.empty() ? "" : ", ") + std::string(entry->d_name);
  }
  if (folder != nullptr) closedir(folder);
  s.facts.push_back({"RDMA devices", devices.empty() ? "none (/sys/class/infiniband is empty or not there)" : devices});
  return s;
}

Section mpi_section() {
  Section s{"MPI", {}};
  const std::pair<const char*, std::vector<const char*>> kinds[] = {
      {"Open MPI", {"libmpi.so.40", "libmpi_openmpi.so"}}, {"MPICH", {"libmpich.so.12", "libmpich.so"}}};
  for (const auto& [name, libraries] : kinds) {
    std::string text;
    for (const char* library : libraries) {
      if (!text.empty()) continue;
      if (const std::string said = ask_library(library); !said.empty()) text = fmt::format("{} ({})", said, library);
    }
    std::string names;
    for (const char* library : libraries) names += (names.empty() ? "" : ", ") + std::string(library);
    s.facts.push_back({name, text.empty() ? "not found (looked for " + names + ")" : text});
  }
  for (const auto& [name, library] : {std::pair{"preload for Open MPI", "libtamaki_mpi_openmpi.so"}, {"preload for MPICH", "libtamaki_mpi_mpich.so"}}) {
    const std::string path = preload_path(library);
    s.facts.push_back({name, path.empty() ? std::string("not installed beside this command (") + library + ")" : path});
  }
  return s;
}

Section job_section() {
  Section s{"job", {}};
  const std::string launcher = surrounding_launcher(), error = launcher_error();
  s.facts.push_back({"started by", launcher.empty() ? "no launcher that is known: one rank" : launcher});
  if (!error.empty()) s.facts.push_back({"place in it", "WRONG: " + error});
  return s;
}

}  // namespace tamaki::tools
