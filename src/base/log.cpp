#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <mutex>

namespace tamaki {
namespace {

std::atomic<int> g_level{static_cast<int>(Level::warn)};
std::atomic<int> g_rank{-1};
std::mutex g_mutex;     // guards g_file and g_fd
std::string g_file;
int g_fd = 2;

std::string expand(std::string_view pattern) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'h': path += host; break;
      case 'p': path += std::to_string(::getpid()); break;
      case 'r': path += std::to_string(g_rank.load(std::memory_order_relaxed)); break;
      default: path += pattern[i];
    }
  }
  return path;
}

}  // namespace

void configure_log(std::string_view level, std::string_view file) {
  constexpr std::string_view names[] = {"none", "error", "warn", "info", "debug"};
  for (int i = 0; i < 5; ++i)
    if (names[i] == level) g_level.store(i, std::memory_order_relaxed);
  const std::lock_guard lock(g_mutex);
  g_file = file;
}

bool log_enabled(Level level) { return static_cast<int>(level) <= g_level.load(std::memory_order_relaxed); }
void set_log_rank(int rank) { g_rank.store(rank, std::memory_order_relaxed); }

void log(Level level, const std::string& message) {
  if (!log_enabled(level)) return;
  constexpr const char* names[] = {"", "ERROR", "WARN", "INFO", "DEBUG"};
  const int rank = g_rank.load(std::memory_order_relaxed);
  std::string line = "tamaki " + std::string(names[static_cast<int>(level)]) +
                     (rank >= 0 ? " [rank " + std::to_string(rank) + "]" : "") + ": " + message + "\n";
  const std::lock_guard lock(g_mutex);
  if (!g_file.empty() && g_fd == 2) {
    const int fd = ::open(expand(g_file).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) g_fd = fd;
  }
  // One write a line, so that lines of several ranks do not mix. A failed write has nowhere to be reported.
  [[maybe_unused]] const auto written = ::write(g_fd, line.data(), line.size());
}

}  // namespace tamaki
