#pragma once
// Pending events by time. Synchronous schedules have tens of thousands of events at one time, so events of
// equal time share a bucket and the heap orders buckets only.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tamaki::simulation {

/// Time in ticks since the start; what a tick is, the simulation says.
using Ticks = std::int64_t;

struct Event {
  enum class Kind : std::uint32_t {
    finish,   // of the first flow of group `id`; stale where `version` is not the group's
    arrival,  // of a message in FIFO `id`
    resume,   // lane `id` goes on with its step
    start,    // lane `id` may start its next message
  };
  Kind kind = Kind::finish;
  std::int32_t id = 0;
  std::uint32_t version = 0;
};

class EventQueue {
 public:
  void push(Ticks time, Event event) {
    Recent& recent = recent_[static_cast<std::uint64_t>(time) * 0x9e3779b97f4a7c15U >> 58];
    if (recent.bucket < 0 || recent.time != time) recent = {time, open(time)};
    buckets_[static_cast<std::size_t>(recent.bucket)].push_back(event);
  }
  bool empty() const { return heap_.empty(); }
  Ticks next() const { return heap_.front().first; }

  /// Appends all events at or before `until` to *events.
  void take(Ticks until, std::vector<Event>* events) {
    while (!heap_.empty() && heap_.front().first <= until) {
      const auto [time, bucket] = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      std::vector<Event>& held = buckets_[static_cast<std::size_t>(bucket)];
      if (events->empty())
        events->swap(held);
      else
        events->insert(events->end(), held.begin(), held.end());
      held.clear();
      free_.push_back(bucket);
      Recent& recent = recent_[static_cast<std::uint64_t>(time) * 0x9e3779b97f4a7c15U >> 58];
      if (recent.bucket == bucket) recent.bucket = -1;
    }
  }

  /// Calls f(time, event) for every pending event, in no order.
  template <class F>
  void each(const F& f) const {
    for (const auto& [time, bucket] : heap_)
      for (const Event& event : buckets_[static_cast<std::size_t>(bucket)]) f(time, event);
  }

 private:
  struct Recent {
    Ticks time = 0;
    std::int32_t bucket = -1;  // open and of that time, or -1
  };

  std::int32_t open(Ticks time) {
    std::int32_t bucket = static_cast<std::int32_t>(buckets_.size());
    if (free_.empty()) {
      buckets_.emplace_back();
    } else {
      bucket = free_.back();
      free_.pop_back();
    }
    heap_.emplace_back(time, bucket);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    return bucket;
  }

  std::vector<std::pair<Ticks, std::int32_t>> heap_;  // earliest first
  std::vector<std::vector<Event>> buckets_;
  std::vector<std::int32_t> free_;
  std::array<Recent, 64> recent_;
};

}  // namespace tamaki::simulation
