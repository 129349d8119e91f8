#include "communicator/plan_cache.hpp"

namespace tamaki {
namespace {

constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccd;
  return h ^ (h >> 32);
}

std::vector<Shape::Block> blocks(const std::size_t* counts, const std::size_t* displacements, int ranks, std::size_t element) {
  std::vector<Shape::Block> made(static_cast<std::size_t>(ranks));
  std::size_t packed = 0;
  for (std::size_t r = 0; r < made.size(); ++r) {
    const std::size_t at = displacements != nullptr ? displacements[r] : packed;
    made[r] = {at * element, counts[r] * element};
    packed += counts[r];
  }
  return made;
}

}  // namespace

std::size_t PlanCache::hash(const PlanKey& key) {
  std::uint64_t h = mix(static_cast<std::uint64_t>(key.collective), static_cast<std::uint64_t>(key.type));
  h = mix(h, static_cast<std::uint64_t>(key.op));
  h = mix(h, static_cast<std::uint64_t>(key.channel));
  h = mix(h, static_cast<std::uint64_t>(key.root));
  h = mix(h, key.count);
  for (std::size_t size : key.uneven_sizes) h = mix(h, size);
  return h;
}

CachedPlan* PlanCache::find(const PlanKey& key) {
  const auto [begin, end] = index_.equal_range(hash(key));
  for (auto it = begin; it != end; ++it)
    if (it->second->key == key) {
      plans_.splice(plans_.begin(), plans_, it->second);
      return &*it->second;
    }
  return nullptr;
}

CachedPlan* PlanCache::insert(PlanKey key, Plan plan, const std::function<bool(const CachedPlan*)>& in_use) {
  for (auto oldest = plans_.end(); plans_.size() >= limit_ && oldest != plans_.begin();) {
    --oldest;
    if (in_use(&*oldest)) continue;
    const auto [begin, end] = index_.equal_range(hash(oldest->key));
    for (auto it = begin; it != end; ++it)
      if (it->second == oldest) {
        index_.erase(it);
        break;
      }
    oldest = plans_.erase(oldest);
  }
  const std::size_t h = hash(key);
  plans_.push_front({std::move(key), std::move(plan), {}});
  index_.emplace(h, plans_.begin());
  return &plans_.front();
}

Shape shape_of(const Call& call, int ranks, int rank) {
  Shape shape;
  shape.element = size_of(call.type);
  shape.bytes = call.count * shape.element;
  if (call.collective == Collective::send_recv) {
    shape.own_input = shape.own_output = shape.bytes;
    return shape;
  }
  if (!call.uneven) return shape;
  shape.uneven = true;
  const auto own = static_cast<std::size_t>(rank);
  if (call.collective == Collective::reduce_scatter) {  // one list of counts: those of the results
    shape.input_blocks = blocks(call.recv_counts, nullptr, ranks, shape.element);
    shape.own_output = shape.input_blocks[own].bytes;
    return shape;
  }
  if (call.send_counts != nullptr) shape.input_blocks = blocks(call.send_counts, call.send_displacements, ranks, shape.element);
  if (call.recv_counts != nullptr) shape.output_blocks = blocks(call.recv_counts, call.recv_displacements, ranks, shape.element);
  switch (call.collective) {
    case Collective::allgather: shape.own_input = shape.output_blocks[own].bytes; break;
    default: shape.own_input = shape.own_output = shape.bytes;  // gather, scatter: the own block
  }
  return shape;
}

std::uint64_t message_bytes(const Call& call, int ranks) {
  const std::size_t element = size_of(call.type);
  switch (call.collective) {
    case Collective::barrier: return 1;
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::send_recv: return call.count * element;
    default: break;
  }
  if (!call.uneven) return call.count * element * static_cast<std::uint64_t>(ranks);
  const std::size_t* counts = call.recv_counts;
  std::uint64_t total = 0;
  for (int r = 0; counts != nullptr && r < ranks; ++r) total += counts[r];
  return total * element;
}

std::uint32_t tag_of(const Call& call) {
  std::uint64_t h = mix(0x7a6d6b, static_cast<std::uint64_t>(call.collective));
  // Bytes, not types: moves of 4 x i32 and 2 x i64 agree. Operations must agree in both.
  if (reduces(call.collective)) h = mix(mix(h, static_cast<std::uint64_t>(call.type)), static_cast<std::uint64_t>(call.op.op));
  h = mix(h, call.uneven);
  if (!call.uneven) h = mix(h, call.count * size_of(call.type));
  if (call.collective != Collective::send_recv) h = mix(h, static_cast<std::uint64_t>(call.root));
  const auto tag = static_cast<std::uint32_t>(h >> 16);
  return tag == 0 ? 1 : tag;  // never the content of fresh memory
}

std::string title_of(const Call& call, std::string_view algorithm) {
  std::string text(name_of(call.collective));
  if (call.collective == Collective::send_recv) text = call.destination >= 0 ? "send" : "receive";
  if (call.collective != Collective::barrier)
    text += (call.uneven ? " of uneven blocks of " : " of " + std::to_string(call.count) + " x ") + std::string(name_of(call.type));
  if (reduces(call.collective)) text += ", " + std::string(name_of(call.op.op));
  switch (call.collective) {
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter: text += ", root " + std::to_string(call.root); break;
    default: break;
  }
  if (!algorithm.empty()) text += " (" + std::string(algorithm) + ")";
  return text;
}

}  // namespace tamaki
