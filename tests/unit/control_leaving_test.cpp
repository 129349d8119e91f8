// What the control plane tells of ranks that leave, whoever else leaves at the same time.

#include <unistd.h>

#include "communicator/job.hpp"
#include "unit/control_fixture.hpp"

namespace tamaki {
namespace {

using namespace control_test;

bool hears(const Control& control, std::uint64_t communicator, int rank, Presence wanted) {
  for (int i = 0; i < 10000; ++i) {
    if (control.presence(communicator, rank) == wanted) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST(ControlLeaving, OfACommunicatorIsToldToAllAndTheJobGoesOn) {
  constexpr int kRanks = 20;
  const Result<UniqueId> id = make_unique_id();
  std::barrier step(kRanks);
  on_ranks(kRanks, [&](int rank) {
    auto control = join_by_id(*id, rank, kRanks, 20000);
    ASSERT_TRUE(control) << control.error().message;
    EXPECT_EQ((*control)->presence(7, 3), Presence::here);
    step.arrive_and_wait();
    if (rank == 3 || rank == 19) (*control)->leave(static_cast<std::uint64_t>(rank + 4));
    EXPECT_TRUE(hears(**control, 7, 3, Presence::left_communicator)) << rank;
    EXPECT_TRUE(hears(**control, 23, 19, Presence::left_communicator)) << rank;
    EXPECT_EQ((*control)->presence(7, 19), Presence::here);
    EXPECT_EQ((*control)->presence(23, 3), Presence::here);
    step.arrive_and_wait();
    check_exchange(**control, kRanks, 8, 1);
    step.arrive_and_wait();
  });
}

/// Parents and children leave at the same time, in any order, with a word of farewell: those that stay hear
/// of all.
TEST(ControlLeaving, OfManyAtOnceIsHeardByThoseThatStayWithWhatWasSaidBefore) {
  constexpr int kRanks = 30;
  std::mt19937 random(1234);
  for (int round = 0; round < 12; ++round) {
    std::vector<bool> leaves(kRanks);
    if (round == 0)
      for (const int r : {2, 17}) leaves[static_cast<std::size_t>(r)] = true;  // a parent and its child
    else if (round == 1)
      for (const int r : {0, 2, 17, 18}) leaves[static_cast<std::size_t>(r)] = true;
    else
      for (int r = 0; r < kRanks; ++r)
        leaves[static_cast<std::size_t>(r)] = random() % 4 < 1 + static_cast<unsigned>(round % 3);
    const auto leavers = static_cast<std::size_t>(std::ranges::count(leaves, true));
    const Result<UniqueId> id = make_unique_id();
    std::barrier step(kRanks), end(kRanks - static_cast<std::ptrdiff_t>(leavers) + 1);
    on_ranks(kRanks + 1, [&](int rank) {
      if (rank == kRanks) return static_cast<void>(end.arrive_and_wait());
      Heard heard;
      auto control = join_by_id(*id, rank, kRanks, 20000);
      ASSERT_TRUE(control) << control.error().message;
      (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
      step.arrive_and_wait();
      if (leaves[static_cast<std::size_t>(rank)]) {
        if (rank % 3 == 1) std::this_thread::sleep_for(1ms * (rank % 7));
        (*control)->announce(1000 + static_cast<std::uint64_t>(rank), {Code::aborted, rank, "farewell"});
        control->reset();
        return;
      }
      for (int r = 0; r < kRanks; ++r) {
        if (!leaves[static_cast<std::size_t>(r)]) continue;
        EXPECT_TRUE(hears(**control, 5, r, Presence::left_job))
            << "round " << round << ": rank " << rank << " of " << r;
        const std::lock_guard lock(heard.mutex);
        EXPECT_TRUE(std::ranges::any_of(heard.all, [r](const auto& news) { return news.second.rank == r; }))
            << "round " << round << ": rank " << rank << " heard that " << r
            << " left, not what it said before";
      }
      end.arrive_and_wait();
      (*control)->listen(nullptr);
      for (const auto& [c, f] : heard.all) EXPECT_NE(c, 0u) << f.message;  // nobody was taken for dead
    });
  }
}

/// A rank whose parent has just left, and which leaves too before it has a new one.
TEST(ControlLeaving, WithoutAParentIsHeardToo) {
  constexpr int kRanks = 12;
  for (const int leaver : {2, 10, 11}) {
    const Result<UniqueId> id = make_unique_id();
    std::barrier step(kRanks), end(kRanks - 2);
    const int first = leaver < 9 ? 0 : 1;  // the parent
    on_ranks(kRanks, [&](int rank) {
      Heard heard;
      auto control = join_by_id(*id, rank, kRanks, 20000);
      ASSERT_TRUE(control) << control.error().message;
      (*control)->listen([&](std::uint64_t c, const Failure& f) { heard.add(c, f); });
      step.arrive_and_wait();
      if (rank == first) control->reset();
      step.arrive_and_wait();
      if (rank == first) return;
      if (rank == leaver) {
        (*control)->announce(9, {Code::aborted, leaver, "the end"});
        control->reset();
        return;
      }
      EXPECT_TRUE(hears(**control, 5, leaver, Presence::left_job)) << "rank " << rank << " of " << leaver;
      EXPECT_TRUE(hears(**control, 5, first, Presence::left_job)) << "rank " << rank << " of " << first;
      EXPECT_TRUE(heard.wait(1)) << "rank " << rank << " of " << leaver;
      end.arrive_and_wait();
      (*control)->listen(nullptr);
    });
  }
}

/// A control plane of one rank that hears what the test says.
class Whisper final : public Control {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 3; }
  std::span<const std::byte> secret() const override { return {}; }
  Status allgather(std::span<const std::byte>, std::span<std::byte>) override { return {}; }
  void announce(std::uint64_t, const Failure&) override {}
  void leave(std::uint64_t) override {}
  Presence presence(std::uint64_t, int) const override { return Presence::here; }
  void listen(std::function<void(std::uint64_t, const Failure&)> listener) override {
    say = std::move(listener);
  }
  std::string describe(int rank) const override { return std::to_string(rank); }
  void set_identities(std::span<const RankIdentity>) override {}

  std::function<void(std::uint64_t, const Failure&)> say;
};

/// Another rank may be through with making a communicator, and have given it up, while this rank still
/// makes it.
TEST(Job, HandsFailuresToCommunicatorsThatAreMadeLater) {
  const auto control = std::make_shared<Whisper>();
  Job job(control);
  control->say(5, {Code::aborted, 1, "early"});
  control->say(6, {Code::aborted, 1, "of another"});
  std::vector<std::string> heard;
  const auto listener = [&](const Failure& failure) { heard.push_back(failure.message); };
  job.add(5, {0, 1}, listener, [] {});
  EXPECT_EQ(heard, std::vector<std::string>{"early"});
  control->say(5, {Code::aborted, 1, "late"});
  EXPECT_EQ(heard, (std::vector<std::string>{"early", "late"}));
  job.remove(5);
  for (std::uint64_t c = 100; c < 2000; ++c) control->say(c, {Code::aborted, 1, "of nobody here"});
  job.add(1999, {0, 1}, listener, [] {});
  EXPECT_EQ(heard.size(), 3u);
  job.add(100, {0, 1}, listener, [] {});  // forgotten: what is kept is bounded
  EXPECT_EQ(heard.size(), 3u);
}

}  // namespace
}  // namespace tamaki
