#pragma once
// From a call to its plan: the key of what makes two calls use one plan, and the plans made so far.

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "communicator/communicator.hpp"
#include "execute/plan.hpp"
#include "execute/store_trial.hpp"
#include "select/select.hpp"

namespace tamaki {

/// What a plan depends on: everything of a call but its buffers.
struct PlanKey {
  Collective collective = Collective::allreduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  bool commutative = true;
  bool uneven = false;
  std::int32_t channel = 0;       // point to point
  std::int32_t root = 0;          // or the peer (point to point)
  std::size_t count = 0;
  std::vector<std::size_t> uneven_sizes;  // counts and displacements, as given
  bool operator==(const PlanKey&) const = default;
};

struct CachedPlan {
  PlanKey key;
  Plan plan;
  StoreTrial stores;
};

/// Keeps the plans used last, up to a limit. References stay valid until the plan is dropped, which happens only in
/// insert(), and never to a plan that is in use (`in_use`).
class PlanCache {
 public:
  explicit PlanCache(std::size_t limit) : limit_(limit) {}
  CachedPlan* find(const PlanKey& key);
  CachedPlan* insert(PlanKey key, Plan plan, const std::function<bool(const CachedPlan*)>& in_use);
  std::size_t size() const { return plans_.size(); }

 private:
  static std::size_t hash(const PlanKey& key);
  std::size_t limit_;
  std::list<CachedPlan> plans_;  // most recently inserted or found first
  std::unordered_multimap<std::size_t, std::list<CachedPlan>::iterator> index_;
};

/// Bytes and blocks of a call, as a layout needs them. `rank`: own.
Shape shape_of(const Call& call, int ranks, int rank);
/// Message size n of select::Question.
std::uint64_t message_bytes(const Call& call, int ranks);
/// Digest of what all ranks of a call must agree on.
std::uint32_t tag_of(const Call& call);
/// "allreduce of 1024 x f32, sum (ring)".
std::string title_of(const Call& call, std::string_view algorithm);

}  // namespace tamaki
