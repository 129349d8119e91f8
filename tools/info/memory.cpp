#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/options.hpp"
#include "info/facts.hpp"

namespace tamaki::tools {
namespace {

std::string dev_shm() {
  struct statvfs fs{};
  if (statvfs("/dev/shm", &fs) != 0) return fmt::format("not there: {}", std::strerror(errno));
  return fmt::format("{} MiB, {} MiB free", fs.f_blocks * fs.f_frsize >> 20, fs.f_bavail * fs.f_frsize >> 20);
}

std::string memfd() {
  const int fd = memfd_create("tamaki-info", MFD_CLOEXEC);
  if (fd < 0) return fmt::format("no: memfd_create: {}", std::strerror(errno));
  close(fd);
  return "yes";
}

std::string huge_pages() {
  std::string text;
  DIR* folder = opendir("/sys/kernel/mm/hugepages");
  while (folder != nullptr) {
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name.rfind("hugepages-", 0) != 0) continue;
    const std::string path = "/sys/kernel/mm/hugepages/" + name;
    text += fmt::format("{}{}: {} reserved, {} free", text.empty() ? "" : "; ", name.substr(10), first_line(path + "/nr_hugepages"),
                        first_line(path + "/free_hugepages"));
  }
  if (folder != nullptr) closedir(folder);
  return text.empty() ? "none" : text;
}

/// Reads a word of a child's memory, as ranks of a host would of each other's.
std::string other_process() {
  int ready[2];
  if (pipe(ready) != 0) return "unknown: no pipe";
  static volatile int word = 17;
  const pid_t child = fork();
  if (child < 0) return fmt::format("unknown: fork: {}", std::strerror(errno));
  if (child == 0) {
    word = 42;
    (void)!write(ready[1], "x", 1);
    close(ready[1]);
    pause();
    _exit(0);
  }
  close(ready[1]);
  char byte;
  (void)!read(ready[0], &byte, 1);
  close(ready[0]);
  int got = 0;
  iovec local{&got, sizeof got}, remote{const_cast<int*>(&word), sizeof word};
  const ssize_t n = process_vm_readv(child, &local, 1, &remote, 1, 0);
  const int error = errno;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (n == static_cast<ssize_t>(sizeof got) && got == 42) {
    if (yama == "1") return "own children only (kernel.yama.ptrace_scope is 1): ranks must allow each other by prctl(PR_SET_PTRACER)";
    if (yama == "2" || yama == "3") return "for this user only as a privileged one (kernel.yama.ptrace_scope is " + yama + ")";
    return yama.empty() ? "yes" : "yes (kernel.yama.ptrace_scope is " + yama + ")";
  }
  std::string why = std::strerror(error);
  if (error == EPERM && !yama.empty() && yama != "0") why += ", kernel.yama.ptrace_scope is " + yama;
  else if (error == EPERM) why += ": refused by a security policy (seccomp, user namespace or capabilities)";
  else if (error == ENOSYS) why += ": the kernel or a seccomp filter does not have it";
  return "no: " + why;
}

}  // namespace

Section memory_section() {
  Section s{"memory between ranks", {}};
  s.facts.push_back({"/dev/shm", dev_shm()});
  s.facts.push_back({"memfd", memfd()});
  s.facts.push_back({"huge pages", huge_pages()});
  const std::string thp = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  s.facts.push_back({"transparent huge pages", thp.empty() ? "not in this kernel" : thp});
  const std::string shmem = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (!shmem.empty()) s.facts.push_back({"huge pages of shared memory", shmem});
  s.facts.push_back({"process_vm_readv", other_process()});
  return s;
}

}  // namespace tamaki::tools
