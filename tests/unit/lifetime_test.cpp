// What a communicator costs and leaves: no allocation on the steady path, nothing kept after its end.

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

#include "support/thread_ranks.hpp"
#include "tamaki/tamaki.h"

// Counts allocations of the thread that asks for it. Replaces the global functions for this whole test program. The
// sanitizers bring their own, which must not be replaced.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TAMAKI_COUNTS_ALLOCATIONS 1
namespace {
thread_local bool t_counting = false;
thread_local long t_allocations = 0;
}  // namespace
// Not inlined: g++ 12 would take malloc and delete for a mismatched pair.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (t_counting) ++t_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace tamaki {
namespace {

#ifdef TAMAKI_COUNTS_ALLOCATIONS
TEST(SteadyState, allocatesNothing) {
  for (const char* transport : {"inproc", "shm", "tcp"})
    test::run_ranks(3, test::config_for(transport), [&](Communicator& c) {
      std::vector<float> in(70000, 1.0f), out(70000);
      // First everything once, so that no rank makes connections while another one counts.
      for (const bool counting : {false, true})
        for (std::size_t n : {2u, 100u, 5000u, 70000u})
          for (Collective collective : {Collective::allreduce, Collective::broadcast, Collective::reduce, Collective::barrier}) {
            Call call;
            call.collective = collective;
            call.input = in.data();
            call.output = out.data();
            call.count = n;
            t_allocations = 0;
            t_counting = counting;
            bool right = true;
            for (int i = 0; i < (counting ? 300 : 30); ++i) right = c.run(call).has_value() && right;
            t_counting = false;
            EXPECT_TRUE(right);
            EXPECT_EQ(t_allocations, 0) << name_of(collective) << " of " << n << " over " << transport;
          }
    });
}

TEST(SteadyState, countsWhatItShould) {
  t_allocations = 0;
  t_counting = true;
  void* made = ::operator new(3);  // a plain `new` may be optimized away
  t_counting = false;
  ::operator delete(made);
  EXPECT_EQ(t_allocations, 1);
}
#endif

int entries(const char* path) {
  int count = 0;
  DIR* folder = ::opendir(path);
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

long resident_pages() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

/// `cycles` communicators of two ranks that are threads, through the C interface, rendezvous and all.
void cycle(int cycles) {
  for (int i = 0; i < cycles; ++i) {
    tmkUniqueId id;
    ASSERT_EQ(tmkGetUniqueId(&id), tmkSuccess) << tmkGetLastError(nullptr);
    const auto rank = [&id](int r) {
      tmkComm_t comm = nullptr;
      EXPECT_EQ(tmkCommInitRank(&comm, 2, id, r, nullptr), tmkSuccess) << tmkGetLastError(nullptr);
      float one = 1, sum = 0;
      EXPECT_EQ(tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm), tmkSuccess) << tmkGetLastError(comm);
      EXPECT_EQ(sum, 2.0f);
      EXPECT_EQ(tmkCommDestroy(comm), tmkSuccess);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
  }
}

TEST(Lifetime, aThousandCommunicatorsLeaveNothing) {
#ifdef TAMAKI_COUNTS_ALLOCATIONS
  const int cycles = 1000;
#else
  const int cycles = 100;  // sanitizers are slow
#endif
  cycle(50);
  const int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  const long pages = resident_pages();
  cycle(cycles);
  EXPECT_LE(entries("/proc/self/fd"), descriptors);
  EXPECT_LE(entries("/proc/self/task"), threads);
#ifdef TAMAKI_COUNTS_ALLOCATIONS
  EXPECT_LT(resident_pages() - pages, 1024) << "4 MiB of growth are noise of the allocator, more is a leak";
#else
  (void)pages;
#endif
}

TEST(Lifetime, splitsAndDuplicatesLeaveNothing) {
  const auto body = [](Communicator& c) {
    for (int i = 0; i < 50; ++i) {
      auto half = c.split(c.rank() % 2, c.rank(), c.config());
      ASSERT_TRUE(half) << half.error().message;
      Call barrier;
      barrier.collective = Collective::barrier;
      ASSERT_TRUE((*half)->run(barrier));
    }
  };
  test::run_ranks(4, test::config_for("shm,tcp"), body);
  const int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  test::run_ranks(4, test::config_for("shm,tcp"), body);
  EXPECT_LE(entries("/proc/self/fd"), descriptors);
  EXPECT_LE(entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace tamaki
