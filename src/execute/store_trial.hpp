#pragma once
// Which stores carry messages: through the caches or around them.
//
// Between two cores that share a cache, plain stores win (1 MiB allreduce on 2 ranks: 54 us against 105 us). Between
// cores that do not, every line that the writer's cache still holds costs a round trip when it is read, and stores
// around the caches win (545 us against 95 us). Virtual machines move from one state to the other without notice, so
// a plan tries both once in a while and keeps what was faster. The choice concerns this rank's stores alone; nothing
// has to be agreed upon.

#include <cstdint>

namespace tamaki {

class StoreTrial {
 public:
  /// Whether the next execution should store around the caches.
  bool stream() const { return trying_ ? executions_ % 2 != 0 : best_; }
  /// Whether the next execution has to be timed.
  bool timed() const { return trying_; }
  /// After each execution; `ns`: how long it took, if it was timed.
  void executed(std::int64_t ns) {
    if (!trying_) {
      if (++executions_ >= kKeep) trying_ = true, executions_ = 0, least_[0] = least_[1] = INT64_MAX;
      return;
    }
    std::int64_t& least = least_[executions_ % 2];
    if (executions_ >= 2 && ns < least) least = ns;  // the first of each kind warms up
    if (++executions_ < kTries) return;
    best_ = least_[1] < least_[0];
    trying_ = false;
    executions_ = 0;
  }

 private:
  static constexpr std::uint32_t kTries = 12;    // executions of a trial, every other one each way
  static constexpr std::uint32_t kKeep = 2000;   // executions until the next trial
  bool trying_ = true;
  bool best_ = false;
  std::uint32_t executions_ = 0;
  std::int64_t least_[2] = {INT64_MAX, INT64_MAX};
};

}  // namespace tamaki
