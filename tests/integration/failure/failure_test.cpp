// What happens when a rank dies, stops or disagrees: every other rank gets an error that names it, in time; nothing is
// left behind. Ranks are processes, talking through the C interface.

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "job.hpp"

namespace {

using namespace tamaki::failure_test;

/// Allreduces until one fails.
tmkResult_t reduce_for_ever(tmkComm_t comm, int rank, Board* board, std::size_t count) {
  std::vector<float> in(count, 1.0f), out(count);
  while (true) {
    const tmkResult_t result = tmkAllreduce(in.data(), out.data(), count, tmkFloat32, tmkSum, comm);
    if (result != tmkSuccess) return result;
    int ranks = 0;
    tmkCommSize(comm, &ranks);
    if (out[0] != static_cast<float>(ranks) || out[count - 1] != static_cast<float>(ranks)) return tmkInternalError;
    board->ranks[rank].calls.fetch_add(1);
  }
}

int leftovers() {
  int found = 0;
  if (DIR* folder = ::opendir("/dev/shm")) {
    while (const dirent* entry = ::readdir(folder)) found += std::strncmp(entry->d_name, "tamaki.", 7) == 0;
    ::closedir(folder);
  }
  return found;
}

struct Case {
  const char* transports;
  const char* backing;
  std::size_t count;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.transports << " " << c.backing << " " << c.count; }

class Death : public ::testing::TestWithParam<Case> {};

TEST_P(Death, isAnErrorThatNamesTheRankWithinASecond) {
  ::setenv("TAMAKI_SHM_BACKING", GetParam().backing, 1);
  for (int victim = 0; victim < 4; ++victim) {
    const std::size_t count = GetParam().count;
    Job job(4, config_of(GetParam().transports, 30000),
            [count](tmkComm_t comm, int rank, Board* board) { return reduce_for_ever(comm, rank, board, count); });
    ASSERT_TRUE(job.wait_calls(20)) << "ranks did not start: " << job.rank(victim == 0 ? 1 : 0).text;
    ::usleep(static_cast<useconds_t>(victim) * 1731);
    const double killed = job.now();
    job.signal(victim, SIGKILL);
    for (int r = 0; r < 4; ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(job.wait_finished(r, 10)) << "rank " << r << " hangs after the death of rank " << victim;
      EXPECT_EQ(job.rank(r).result, tmkPeerLost) << job.rank(r).text;
      EXPECT_NE(std::string(job.rank(r).text).find("rank " + std::to_string(victim)), std::string::npos) << job.rank(r).text;
      EXPECT_LT(job.rank(r).at - killed, 1.0) << "rank " << r << ", victim " << victim;
    }
  }
  ::unsetenv("TAMAKI_SHM_BACKING");
  EXPECT_EQ(leftovers(), 0) << "files are left in /dev/shm";
}

INSTANTIATE_TEST_SUITE_P(All, Death,
                         ::testing::Values(Case{"shm", "auto", 2}, Case{"shm", "auto", 500000}, Case{"shm", "devshm", 1000},
                                           Case{"tcp", "auto", 2}, Case{"tcp", "auto", 300000}));

TEST(Death, duringStartIsAnErrorOnTheOthers) {
  for (int delay_us : {0, 2000, 8000, 20000}) {
    Job job(5, config_of("shm,tcp", 5000), [](tmkComm_t comm, int rank, Board* board) { return reduce_for_ever(comm, rank, board, 3); });
    ::usleep(static_cast<useconds_t>(delay_us));
    job.signal(3, SIGKILL);
    for (int r : {0, 1, 2, 4}) {
      ASSERT_TRUE(job.wait_finished(r, 15)) << "rank " << r << " hangs; the death came after " << delay_us << " us";
      EXPECT_NE(job.rank(r).result, tmkSuccess);
    }
  }
}

TEST(Stop, endsInATimeoutThatNamesWhomItWaitedFor) {
  for (const char* transports : {"shm", "tcp"}) {
    Job job(3, config_of(transports, 1500), [](tmkComm_t comm, int rank, Board* board) { return reduce_for_ever(comm, rank, board, 5); });
    ASSERT_TRUE(job.wait_calls(10)) << job.rank(0).text;
    const double stopped = job.now();
    job.signal(1, SIGSTOP);
    for (int r : {0, 2}) {
      ASSERT_TRUE(job.wait_finished(r, 10)) << "rank " << r;
      EXPECT_EQ(job.rank(r).result, tmkTimeout) << job.rank(r).text;
      EXPECT_NE(std::string(job.rank(r).text).find("rank 1"), std::string::npos) << job.rank(r).text;
      EXPECT_GT(job.rank(r).at - stopped, 1.0);
      EXPECT_LT(job.rank(r).at - stopped, 4.0);
    }
  }
}

/// A process that exits without destroying its communicator has left, not died: what it sent still counts.
TEST(Exit, withoutDestroyIsNoDeath) {
  for (const char* transports : {"shm", "tcp"}) {
    Job job(3, config_of(transports, 10000), [](tmkComm_t comm, int rank, Board* board) -> tmkResult_t {
      std::vector<float> in(100000, 1.0f), out(100000);
      tmkResult_t result = tmkBroadcast(in.data(), out.data(), in.size(), tmkFloat32, 0, comm);
      if (rank == 0) {
        board->ranks[0].finished.store(1);
        std::exit(0);  // runs the library's end, not tmkCommDestroy
      }
      ::usleep(300000);  // well after the end of rank 0
      if (result == tmkSuccess && rank == 1) result = tmkSend(in.data(), in.size(), tmkFloat32, 2, comm);
      if (result == tmkSuccess && rank == 2) result = tmkRecv(out.data(), out.size(), tmkFloat32, 1, comm);
      return result;
    });
    for (int r : {1, 2}) {
      ASSERT_TRUE(job.wait_finished(r, 15)) << "rank " << r;
      EXPECT_EQ(job.rank(r).result, tmkSuccess) << transports << ": " << job.rank(r).text;
    }
  }
}

TEST(Abort, fromAnotherThreadFreesABlockedCallHereAndThere) {
  Job job(3, config_of("shm", 30000), [](tmkComm_t comm, int rank, Board* board) -> tmkResult_t {
    float one = 1, sum = 0;
    if (rank == 2) {  // never comes to the collective
      while (board->ranks[0].finished.load() == 0) ::usleep(1000);
      return tmkSuccess;
    }
    std::thread aborter;
    if (rank == 0) aborter = std::thread([comm] {
      ::usleep(200000);
      tmkCommAbort(comm);
    });
    const tmkResult_t result = tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm);
    if (aborter.joinable()) aborter.join();
    return result;
  });
  for (int r : {0, 1}) {
    ASSERT_TRUE(job.wait_finished(r, 5)) << "rank " << r << " hangs";
    EXPECT_EQ(job.rank(r).result, tmkAborted) << job.rank(r).text;
  }
}

TEST(Disagreement, isReportedWithBothSidesInCheckMode) {
  tmkConfig_t config = config_of("shm", 5000);
  config.check = 1;
  Job job(3, config, [](tmkComm_t comm, int rank, Board*) {
    std::vector<float> in(100), out(100);
    if (rank == 2) return tmkBroadcast(in.data(), out.data(), 100, tmkFloat32, 1, comm);
    return tmkAllreduce(in.data(), out.data(), 100, tmkFloat32, tmkSum, comm);
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(job.wait_finished(r, 10));
    EXPECT_EQ(job.rank(r).result, tmkMismatch) << job.rank(r).text;
    for (const char* part : {"ranks 0 and 2", "allreduce of 100 x f32, sum", "broadcast of 100 x f32, root 1"})
      EXPECT_NE(std::string(job.rank(r).text).find(part), std::string::npos) << job.rank(r).text;
  }
}

/// Calls that some ranks make by right do not count as a disagreement.
TEST(Disagreement, isNotSeenInMessagesOrSplitsOfSomeRanks) {
  tmkConfig_t config = config_of("shm", 5000);
  config.check = 1;
  Job job(3, config, [](tmkComm_t comm, int rank, Board*) -> tmkResult_t {
    int value = rank, got = -1;
    if (rank == 1) tmkSend(&value, 1, tmkInt32, 2, comm);
    if (rank == 2) tmkRecv(&got, 1, tmkInt32, 1, comm);
    if (rank == 2 && got != 1) return tmkInternalError;
    if (const tmkResult_t result = tmkBarrier(comm); result != tmkSuccess) return result;
    tmkComm_t some = nullptr;
    if (const tmkResult_t result = tmkCommSplit(comm, rank == 0 ? TMK_SPLIT_NOCOLOR : 1, 0, &some, nullptr); result != tmkSuccess) return result;
    if (some != nullptr) tmkCommDestroy(some);
    return tmkBarrier(comm);
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(job.wait_finished(r, 10));
    EXPECT_EQ(job.rank(r).result, tmkSuccess) << job.rank(r).text;
  }
}

TEST(Fork, childMayNotUseItsParentsCommunicator) {
  Job job(2, config_of("shm", 5000), [](tmkComm_t comm, int rank, Board*) -> tmkResult_t {
    float one = 1, sum = 0;
    if (const tmkResult_t result = tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm); result != tmkSuccess) return result;
    if (rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm) == tmkInvalidUsage ? 0 : 1);
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return tmkInternalError;
    }
    const tmkResult_t result = tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm);
    return result == tmkSuccess && sum != 2.0f ? tmkInternalError : result;
  });
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(job.wait_finished(r, 10));
    EXPECT_EQ(job.rank(r).result, tmkSuccess) << job.rank(r).text;
  }
}

TEST(DevShm, servesDuplicatesAndMessages) {
  ::setenv("TAMAKI_SHM_BACKING", "devshm", 1);
  Job job(3, config_of("shm", 5000), [](tmkComm_t comm, int rank, Board*) -> tmkResult_t {
    std::vector<std::int8_t> in(1 << 20, 1), out(1 << 20);
    for (std::size_t n = 1; n <= in.size(); n *= 4)
      if (const tmkResult_t result = tmkAllreduce(in.data(), out.data(), n, tmkInt8, tmkSum, comm); result != tmkSuccess) return result;
    tmkComm_t copy = nullptr;
    if (const tmkResult_t result = tmkCommDup(comm, &copy); result != tmkSuccess) return result;
    int value = rank, got = -1;
    const tmkResult_t result = tmkSendrecv(&value, 1, (rank + 1) % 3, &got, 1, (rank + 2) % 3, tmkInt32, copy);
    tmkCommDestroy(copy);
    return result == tmkSuccess && got != (rank + 2) % 3 ? tmkInternalError : result;
  });
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(job.wait_finished(r, 15));
    EXPECT_EQ(job.rank(r).result, tmkSuccess) << job.rank(r).text;
  }
  ::unsetenv("TAMAKI_SHM_BACKING");
}

TEST(Disagreement, aboutOrderOrCountIsNeverAWrongResult) {
  Job job(2, config_of("shm", 1500), [](tmkComm_t comm, int rank, Board*) {
    std::vector<float> in(5000, 1.0f), out(5000);
    return tmkAllreduce(in.data(), out.data(), rank == 0 ? 5000 : 4000, tmkFloat32, tmkSum, comm);
  });
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(job.wait_finished(r, 10));
    EXPECT_TRUE(job.rank(r).result == tmkMismatch || job.rank(r).result == tmkTimeout) << job.rank(r).result << " " << job.rank(r).text;
  }
}

/// A small /dev/shm: another path, a right result, never SIGBUS.
TEST(SmallSharedMemory, leadsToAnotherPath) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a small /dev/shm needs root";
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=8m") != 0)
      ::_exit(77);
    ::setenv("TAMAKI_SHM_BACKING", "devshm", 1);
    int failures = 0;
    {
      Job job(6, config_of("shm,tcp", 10000), [](tmkComm_t comm, int rank, Board* board) {
        std::vector<float> in(200000, 1.0f), out(200000);
        tmkResult_t result = tmkSuccess;
        for (int i = 0; i < 5 && result == tmkSuccess; ++i) {
          result = tmkAllreduce(in.data(), out.data(), in.size(), tmkFloat32, tmkSum, comm);
          if (out[0] != 6.0f || out.back() != 6.0f) result = tmkInternalError;
        }
        board->ranks[rank].calls.store(5);
        return result;
      });
      for (int r = 0; r < 6; ++r) failures += !job.wait_finished(r, 30) || job.rank(r).result != tmkSuccess;
    }
    ::_exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "mount namespaces are not allowed here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
