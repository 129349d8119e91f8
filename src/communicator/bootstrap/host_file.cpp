// Ranks of one host without a launcher that exchanges anything for them: rank 0 makes a unique id and leaves it in a
// file of this user's own folder, under a name that is the digest of the job.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/options.hpp"
#include "communicator/bootstrap/environment.hpp"

namespace tamaki::bootstrap {
namespace {

/// "<start time in ticks>" of a process, empty if there is none. With the pid it is unique until the next boot.
std::string start_of(long pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::size_t at = name_end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at) + 1;
  return line.substr(at, line.find(' ', at) - at);
}

/// A folder of this user's own, mode 0700: nobody else can place files in it or read them.
Result<FileDescriptor> own_folder(std::string* path) {
  const std::string runtime = environment_variable("XDG_RUNTIME_DIR");
  std::string why;
  for (const std::string& base : {runtime, std::string("/dev/shm"), std::string("/tmp")}) {
    if (base.empty()) continue;
    *path = base + "/tamaki-" + std::to_string(::geteuid());
    if (::mkdir(path->c_str(), 0700) != 0 && errno != EEXIST) {
      why += "; " + fail_errno("mkdir " + *path).value().message;
      continue;
    }
    FileDescriptor folder(::open(path->c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat facts {};
    if (folder && ::fstat(folder.get(), &facts) == 0 && facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0)
      return folder;
    why += "; " + *path + " is not a folder of this user alone";
  }
  return fail(Code::system, "no place for the rendezvous file" + why);
}

struct Content {
  UniqueId id{};
  long pid = 0;
  std::string start;
};

/// "TAMAKI1 <pid> <start> <id in hexadecimal> end"
Status write_file(const FileDescriptor& folder, const std::string& name, const UniqueId& id) {
  const std::string text = "TAMAKI1 " + std::to_string(::getpid()) + " " + start_of(::getpid()) + " " + to_hex(id.bytes) + " end\n";
  const std::string draft = name + "." + std::to_string(::getpid());
  ::unlinkat(folder.get(), draft.c_str(), 0);
  FileDescriptor file(::openat(folder.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno("create rendezvous file " + draft);
  const ssize_t n = ::write(file.get(), text.data(), text.size());
  // The name appears with its content, and replaces what a job of that name left behind when it was killed.
  if (n != static_cast<ssize_t>(text.size()) || ::renameat(folder.get(), draft.c_str(), folder.get(), name.c_str()) != 0) {
    const Status failed = fail_errno("write rendezvous file " + name);
    ::unlinkat(folder.get(), draft.c_str(), 0);
    return failed;
  }
  return {};
}

/// Nothing while there is no file, or one of a process that is no more.
bool read_file(const FileDescriptor& folder, const std::string& name, Content* content) {
  const FileDescriptor file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() ||
      (facts.st_mode & 077) != 0)
    return false;
  char text[1024] = {}, start[64] = {}, id[2 * sizeof content->id.bytes + 1] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return false;
  if (std::sscanf(text, "TAMAKI1 %ld %63s %256s end", &content->pid, start, id) != 3) return false;
  content->start = start;
  return from_hex(id, content->id.bytes) && start_of(content->pid) == content->start;
}

}  // namespace

Result<std::unique_ptr<Control>> join_by_host_file(const Launch& launch, unsigned generation, int timeout_ms) {
  const Deadline deadline = deadline_in(timeout_ms);
  std::string path;
  const Result<FileDescriptor> folder = own_folder(&path);
  if (!folder) return tl::unexpected<Error>(folder.error());
  // Hydra says nothing about the job but the number of the descriptor; its ranks have one parent, the proxy.
  const std::string parent =
      launch.by == Launch::By::hydra ? std::to_string(::getppid()) + " " + start_of(::getppid()) : std::string();
  const Secret digest = derive_secret(launch.job + " " + parent + " " + std::to_string(launch.ranks) + " " +
                                          std::to_string(generation),
                                      "host file");
  const std::string name = "job-" + to_hex(std::span(digest).first(16));
  const auto left = [&] { return std::max(1, poll_timeout(deadline)); };
  if (launch.rank == 0) {
    const Result<UniqueId> id = make_unique_id();
    if (!id) return tl::unexpected<Error>(id.error());
    if (Status status = write_file(*folder, name, *id); !status) return pass(std::move(status));
    Result<std::unique_ptr<Control>> control = join_by_id(*id, 0, launch.ranks, left());
    ::unlinkat(folder->get(), name.c_str(), 0);
    return control;
  }
  Content content;
  for (int pause_ms = 1; !read_file(*folder, name, &content); pause_ms = std::min(50, pause_ms * 2)) {
    if (Clock::now() >= deadline)
      return fail(Code::timeout, "rank 0 did not leave its rendezvous at " + path + "/" + name + " within " +
                                     duration_text(timeout_ms), Scope::communicator);
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
  return join_by_id(content.id, launch.rank, launch.ranks, left());
}

}  // namespace tamaki::bootstrap
