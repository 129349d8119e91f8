#include "base/bell.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace tamaki {
namespace {

// Without membarrier a ring can be missed (store of news and load of `sleeping` may swap); sleeps are then short.
std::atomic<bool> g_have_membarrier{false};

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void register_for_bells() {
  const long ok = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
  g_have_membarrier.store(ok == 0, std::memory_order_relaxed);
}

void ring_bell(Bell& bell, bool shared) {
  bell.word.fetch_add(1, std::memory_order_release);  // pairs with the load in sleep_on by the kernel's own order
  futex(&bell.word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

std::uint32_t prepare_sleep(Bell& bell) {
  const std::uint32_t ticket = bell.word.load(std::memory_order_acquire);
  bell.sleeping.store(1, std::memory_order_seq_cst);
  if (g_have_membarrier.load(std::memory_order_relaxed)) ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  return ticket;
}

void sleep_on(Bell& bell, std::uint32_t ticket, bool shared, long timeout_us) {
  if (!g_have_membarrier.load(std::memory_order_relaxed)) timeout_us = std::min(timeout_us, 500L);
  const timespec timeout{timeout_us / 1000000, timeout_us % 1000000 * 1000};
  futex(&bell.word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, ticket, &timeout);
}

void end_sleep(Bell& bell) { bell.sleeping.store(0, std::memory_order_relaxed); }

}  // namespace tamaki
