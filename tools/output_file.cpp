#include "output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tamaki::tools {

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (made_) unlink(path_.c_str());
}

tl::unexpected<Error> OutputFile::failed(int error) const {
  return fail(Code::system, option_ + ": writing " + (path_ == "-" ? "to stdout" : "\"" + path_ + "\"") +
                                ": " + std::strerror(error));
}

Status OutputFile::open(const char* option, const std::string& path) {
  option_ = option;
  path_ = path;
  if (path.empty() || path == "-") return {};
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  made_ = fd_ >= 0;
  if (fd_ < 0) fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  return fd_ >= 0 ? Status() : failed(errno);
}

Status OutputFile::write(const std::string& text) {
  if (path_.empty()) return {};
  if (path_ == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      return failed(errno);
    return {};
  }
  struct stat about {};
  // A pipe or a device has no contents to replace.
  if (fstat(fd_, &about) == 0 && S_ISREG(about.st_mode) && ftruncate(fd_, 0) != 0) return failed(errno);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno);
    at += static_cast<std::size_t>(n);
  }
  made_ = false;
  if (close(std::exchange(fd_, -1)) != 0) return failed(errno);
  return {};
}

}  // namespace tamaki::tools
