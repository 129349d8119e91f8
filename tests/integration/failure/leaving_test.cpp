// What happens when a rank leaves in order: whoever still waits for it gets an error that says so, soon;
// what it sent before it left still counts; and the news of an abort outlives the rank that aborted.

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <vector>

#include "job.hpp"

namespace {

using namespace tamaki::failure_test;

constexpr double kSoon = 3.0;  // seconds; deadlines are ten times as long

enum class Manner { destroys, destroys_and_ends, exits };
constexpr const char* kManners[] = {"destroys", "destroys and ends", "exits"};

void wait_stage(const Board* board, int stage) {
  while (board->stage.load() < stage) ::usleep(1000);
}

/// Ends rank `rank`. `others_done`: number of ranks that must have finished before a process that stays may
/// end.
tmkResult_t leave(tmkComm_t comm, int rank, Board* board, Manner manner, int ranks) {
  board->left.store(seconds_since(board->began));
  board->ranks[rank].finished.store(1);
  if (manner == Manner::exits) std::exit(0);  // runs the library's end, not tmkCommDestroy
  tmkCommDestroy(comm);
  if (manner == Manner::destroys)
    for (int r = 0; r < ranks; ++r)
      while (board->ranks[r].finished.load() == 0) ::usleep(1000);
  ::_exit(0);
}

void expect_left(Job& job, int r, int leaver, const std::string& what) {
  ASSERT_TRUE(job.wait_finished(r, 20)) << what << ": rank " << r << " hangs";
  const std::string text = job.rank(r).text;
  EXPECT_EQ(job.rank(r).result, tmkPeerLost) << what << ", rank " << r << ": " << text;
  const std::string name = "rank " + std::to_string(leaver);
  EXPECT_NE(text.find(name), std::string::npos) << what << ", rank " << r << ": " << text;
  EXPECT_TRUE(text.find("has left the job") != std::string::npos ||
              text.find("has destroyed its communicator") != std::string::npos ||
              text.find("has left the communicator") != std::string::npos)
      << what << ", rank " << r << ": " << text;
  EXPECT_LT(job.rank(r).at - job.board().left.load(), kSoon) << what << ", rank " << r << ": " << text;
}

struct Case {
  const char* transports;
  bool contact;  // the ranks have talked before
};
void PrintTo(const Case& c, std::ostream* os) {
  *os << c.transports << (c.contact ? " after a call" : " before any call");
}

class Leaving : public ::testing::TestWithParam<Case> {};

TEST_P(Leaving, isAnErrorForThoseThatWait) {
  const Case& c = GetParam();
  for (const Manner manner : {Manner::destroys, Manner::destroys_and_ends, Manner::exits})
    for (const int leaver : {0, 2, 3}) {
      Job job(4, config_of(c.transports, 30000), [&](tmkComm_t comm, int rank, Board* board) {
        std::vector<float> in(1000, 1.0f), out(1000);
        if (c.contact)
          if (const tmkResult_t result =
                  tmkAllreduce(in.data(), out.data(), in.size(), tmkFloat32, tmkSum, comm);
              result != tmkSuccess)
            return result;
        if (rank == leaver) return leave(comm, rank, board, manner, 4);
        return tmkAllreduce(in.data(), out.data(), in.size(), tmkFloat32, tmkSum, comm);
      });
      for (int r = 0; r < 4; ++r)
        if (r != leaver)
          expect_left(job, r, leaver,
                      "rank " + std::to_string(leaver) + " " + kManners[static_cast<int>(manner)]);
    }
}

TEST_P(Leaving, isAnErrorForThoseThatPoll) {
  const Case& c = GetParam();
  for (const int leaver : {0, 1}) {
    Job job(2, config_of(c.transports, 30000), [&](tmkComm_t comm, int rank, Board* board) {
      int value = 0;
      if (c.contact)
        if (const tmkResult_t result = tmkBarrier(comm); result != tmkSuccess) return result;
      if (rank == leaver) return leave(comm, rank, board, Manner::destroys, 2);
      tmkRequest_t request = nullptr;
      tmkResult_t result = tmkIrecv(&value, 1, tmkInt32, leaver, comm, &request);
      for (int done = 0; result == tmkSuccess && done == 0;) result = tmkTest(&request, &done);
      return result;
    });
    expect_left(job, 1 - leaver, leaver, "polling");
  }
}

/// Only one of its communicators: the others of that one are told, the job goes on.
TEST_P(Leaving, endsOneCommunicatorOfSeveral) {
  const Case& c = GetParam();
  for (const int leaver : {0, 2}) {
    Job job(3, config_of(c.transports, 30000), [&](tmkComm_t comm, int rank, Board* board) {
      tmkComm_t copy = nullptr;
      if (const tmkResult_t result = tmkCommDup(comm, &copy); result != tmkSuccess) return result;
      if (c.contact)
        if (const tmkResult_t result = tmkBarrier(copy); result != tmkSuccess) return result;
      tmkResult_t result = tmkPeerLost;
      std::string text;
      if (rank == leaver) {
        board->left.store(seconds_since(board->began));
      } else {
        result = tmkBarrier(copy);
        text = tmkGetLastError(copy);
      }
      tmkCommDestroy(copy);
      if (const tmkResult_t after = tmkBarrier(comm); after != tmkSuccess) return after;  // unharmed
      if (rank == leaver) return tmkSuccess;
      Board::Rank& mine = board->ranks[rank];
      mine.result = result;
      mine.at = seconds_since(board->began);
      std::strncpy(mine.text, text.c_str(), sizeof mine.text - 1);
      mine.finished.store(1);
      tmkCommDestroy(comm);
      ::_exit(0);
    });
    for (int r = 0; r < 3; ++r) {
      if (r != leaver) {
        expect_left(job, r, leaver, "copy");
        EXPECT_NE(std::string(job.rank(r).text).find("has destroyed its communicator"), std::string::npos)
            << job.rank(r).text;
      } else {
        ASSERT_TRUE(job.wait_finished(r, 20));
        EXPECT_EQ(job.rank(r).result, tmkSuccess) << job.rank(r).text;
      }
    }
  }
}

/// What a rank sent before it left is there for ranks that come much later.
TEST_P(Leaving, afterTheLastMessageIsNoFailure) {
  const Case& c = GetParam();
  for (const Manner manner : {Manner::destroys_and_ends, Manner::exits})
    for (const std::size_t count : {std::size_t{1}, std::size_t{30000}, std::size_t{200000}}) {
      Job job(4, config_of(c.transports, 20000), [&](tmkComm_t comm, int rank, Board* board) {
        std::vector<std::int32_t> data(count);
        for (int r = 1; r < 4 && c.contact; ++r) {
          tmkResult_t result = tmkSuccess;
          if (rank == 0) result = tmkSend(data.data(), 1, tmkInt32, r, comm);
          if (rank == r) result = tmkRecv(data.data(), 1, tmkInt32, 0, comm);
          if (result != tmkSuccess) return result;
        }
        if (rank == 0) {
          std::iota(data.begin(), data.end(), 5);
          tmkResult_t result = tmkSuccess;
          for (int r = 1; r < 4 && result == tmkSuccess; ++r)
            result = tmkSend(data.data(), count, tmkInt32, r, comm);
          for (int r = 1; r < 4 && result == tmkSuccess; ++r)
            result = tmkSend(data.data(), 1, tmkInt32, r, comm);
          if (result != tmkSuccess) return result;
          board->stage.store(1);
          return leave(comm, rank, board, manner, 4);
        }
        // Rank 1 receives at once; the others begin when the sender is gone, if it can go without them.
        if (rank != 1 && c.contact && count == 1) wait_stage(board, 1);
        if (rank != 1) ::usleep(400000);
        std::int32_t last = 0;
        if (const tmkResult_t result = tmkRecv(data.data(), count, tmkInt32, 0, comm); result != tmkSuccess)
          return result;
        ::usleep(300000);
        if (const tmkResult_t result = tmkRecv(&last, 1, tmkInt32, 0, comm); result != tmkSuccess)
          return result;
        return data[0] == 5 && data.back() == 4 + static_cast<std::int32_t>(count) && last == 5
                   ? tmkSuccess
                   : tmkInternalError;
      });
      for (int r = 1; r < 4; ++r) {
        ASSERT_TRUE(job.wait_finished(r, 30)) << "rank " << r;
        EXPECT_EQ(job.rank(r).result, tmkSuccess)
            << c.transports << ", " << count << " elements, sender " << kManners[static_cast<int>(manner)]
            << ": " << job.rank(r).text;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Leaving,
                         ::testing::Values(Case{"shm", false}, Case{"shm", true}, Case{"tcp", false},
                                           Case{"tcp", true}));

/// Processes that keep all cores busy.
class Load {
 public:
  Load() {
    for (int i = 0; i < 4; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (std::atomic<unsigned> n{0};;) n.fetch_add(1);
      }
      pids_.push_back(pid);
    }
  }
  ~Load() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

void expect_aborted(Job& job, int r, int aborter, const std::string& what) {
  ASSERT_TRUE(job.wait_finished(r, 30)) << what << ": rank " << r << " hangs";
  EXPECT_EQ(job.rank(r).result, tmkAborted) << what << ", rank " << r << ": " << job.rank(r).text;
  EXPECT_NE(std::string(job.rank(r).text).find("aborted by its rank " + std::to_string(aborter)),
            std::string::npos)
      << what << ", rank " << r << ": " << job.rank(r).text;
}

/// Whoever aborts as soon as it has a communicator may be ahead of ranks that are still making theirs.
TEST(Abort, atOnceThenDestroyAndEndReachesEverybody) {
  const Load load;
  for (const char* transports : {"shm", "tcp"})
    for (int round = 0; round < 12; ++round) {
      const int aborter = round % 4;
      Job job(4, config_of(transports, 8000), [&](tmkComm_t comm, int rank, Board* board) -> tmkResult_t {
        float one = 1, sum = 0;
        if (round % 2 != 0)
          if (const tmkResult_t result = tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm);
              result != tmkSuccess)
            return result;
        if (rank == aborter) {
          tmkCommAbort(comm);
          return leave(comm, rank, board, Manner::destroys_and_ends, 4);
        }
        return tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, comm);
      });
      for (int r = 0; r < 4; ++r)
        if (r != aborter)
          expect_aborted(job, r, aborter, std::string(transports) + " round " + std::to_string(round));
    }
}

/// The rank that aborts has just lost its place in the control tree to others that left.
TEST(Abort, rightAfterOthersLeftReachesEverybody) {
  for (const char* transports : {"shm", "tcp"})
    for (int round = 0; round < 6; ++round) {
      const int aborter = 1 + round % 4;
      Job job(5, config_of(transports, 8000), [&](tmkComm_t comm, int rank, Board* board) -> tmkResult_t {
        tmkComm_t some = nullptr;
        if (const tmkResult_t result =
                tmkCommSplit(comm, rank == 0 ? TMK_SPLIT_NOCOLOR : 1, 0, &some, nullptr);
            result != tmkSuccess)
          return result;
        if (rank == 0) {
          board->ranks[0].finished.store(1);
          tmkCommDestroy(comm);
          board->stage.store(1);
          ::_exit(0);
        }
        tmkCommDestroy(comm);
        if (rank == aborter) {
          wait_stage(board, 1);
          tmkCommAbort(some);
          return leave(some, rank, board, Manner::destroys_and_ends, 5);
        }
        float one = 1, sum = 0;
        const tmkResult_t result = tmkAllreduce(&one, &sum, 1, tmkFloat32, tmkSum, some);
        Board::Rank& mine = board->ranks[rank];
        mine.result = result;
        std::strncpy(mine.text, tmkGetLastError(some), sizeof mine.text - 1);
        mine.finished.store(1);
        tmkCommDestroy(some);
        ::_exit(0);
      });
      for (int r = 1; r < 5; ++r)
        if (r != aborter)
          expect_aborted(job, r, aborter - 1, std::string(transports) + " round " + std::to_string(round));
    }
}

}  // namespace
