#pragma once
// How a rank sleeps and how its peers wake it.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tamaki {

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

/// A rank that waits sleeps on its bell; a peer that has published something rings it. The ringer pays one load of a
/// line that is rarely written; the store-load order that this needs is bought by the sleeper (membarrier), not by it.
struct alignas(kLine) Bell {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> sleeping{0};
};

/// Wakes whoever sleeps on the bell. `shared`: the bell is in memory shared between processes.
void ring_bell(Bell& bell, bool shared);

/// Announces sleep. Between prepare and sleep the caller looks once more for news; what is published after prepare
/// rings the bell.
std::uint32_t prepare_sleep(Bell& bell);
/// Sleeps until rung (word != ticket) or `timeout_us` have passed.
void sleep_on(Bell& bell, std::uint32_t ticket, bool shared, long timeout_us);
/// Ends what prepare_sleep began.
void end_sleep(Bell& bell);

/// Registers this process for the barriers of its peers' sleepers. Call once before any bell is used.
void register_for_bells();

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tamaki
