#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace tamaki {
namespace {

std::atomic<std::uint32_t> g_generation{0};

}  // namespace

std::uint32_t fork_generation() {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
  return g_generation.load(std::memory_order_relaxed);
}

}  // namespace tamaki
