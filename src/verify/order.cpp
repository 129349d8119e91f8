#include "verify/order.hpp"

#include <algorithm>
#include <numeric>

namespace tamaki::proof {
namespace {

constexpr int kMaxWords = 64;  // first steps a pass: 4096

/// Bits kept for steps that others still wait for.
class Kept {
 public:
  Kept(std::size_t nodes, int words) : words_(words), place_(nodes, -1), uses_(nodes, 0) {}
  void expect(std::int32_t node) { ++uses_[node]; }
  void keep(std::int32_t node, const std::uint64_t* bits) {
    if (uses_[node] == 0) return;
    if (free_.empty()) {
      free_.push_back(static_cast<std::int32_t>(pool_.size() / words_));
      pool_.resize(pool_.size() + words_);
    }
    place_[node] = free_.back();
    free_.pop_back();
    std::copy_n(bits, words_, pool_.data() + std::size_t(place_[node]) * words_);
  }
  void use(std::int32_t node, std::uint64_t* bits) {
    const std::uint64_t* from = pool_.data() + std::size_t(place_[node]) * words_;
    for (int w = 0; w < words_; ++w) bits[w] |= from[w];
    if (--uses_[node] == 0) free_.push_back(place_[node]);
  }

 private:
  const int words_;
  std::vector<std::int32_t> place_, uses_, free_;
  std::vector<std::uint64_t> pool_;
};

/// Calls visit(node) for each step of another lane that `node` waits for.
template <class Visit>
void for_each_cause(const Flat& flat, const Progress& progress, std::int32_t node, Visit visit) {
  const Node& n = flat.nodes[node];
  for (int k = 0; k < n.step->sources; ++k) {
    const std::int32_t operand = n.first_operand + k;
    if (flat.operands[operand].fifo >= 0 && progress.match[operand] >= 0)
      visit(flat.owner[progress.match[operand]]);
  }
  for (int i = 0; i < n.step->dependencies; ++i) {
    const Program& program = flat.program_of(node);
    const std::int32_t other = flat.node_of(program.dependencies[n.step->first_dependency + i], node);
    if (flat.nodes[other].lane != n.lane) visit(other);
  }
}

template <class Visit>
void walk(const Flat& flat, const Progress& progress, int words, const Active& active, Visit visit) {
  Kept kept(flat.nodes.size(), words);
  for (std::int32_t node : progress.order)
    if (!active || active(node))
      for_each_cause(flat, progress, node, [&](std::int32_t cause) { kept.expect(cause); });
  std::vector<std::uint64_t> lanes(flat.lanes.size() * words, 0);
  for (std::int32_t node : progress.order) {
    std::uint64_t* bits = lanes.data() + std::size_t(flat.nodes[node].lane) * words;
    if (!active || active(node)) {
      for_each_cause(flat, progress, node, [&](std::int32_t cause) { kept.use(cause, bits); });
      visit(node, bits);
    }
    kept.keep(node, bits);
  }
}

}  // namespace

void propagate(const Flat& flat, const Progress& progress, int words,
               const std::function<void(std::int32_t, std::uint64_t*)>& visit) {
  walk(flat, progress, words, nullptr, visit);
}

std::vector<std::int32_t> not_obvious(const Flat& flat, const Progress& progress,
                                      const std::vector<OrderQuestion>& questions) {
  std::vector<std::int32_t> open;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    const std::int32_t before = questions[q].before, after = questions[q].after;
    bool ordered = flat.nodes[before].lane == flat.nodes[after].lane;
    if (!ordered)
      for_each_cause(flat, progress, after, [&](std::int32_t cause) {
        ordered = ordered || (flat.nodes[cause].lane == flat.nodes[before].lane && cause >= before);
      });
    if (!ordered) open.push_back(static_cast<std::int32_t>(q));
  }
  return open;
}

std::vector<std::int32_t> unordered(const Flat& flat, const Progress& progress,
                                    const std::vector<OrderQuestion>& questions,
                                    std::vector<std::int32_t> open, const Active& active) {
  std::vector<std::int32_t> found;
  if (open.empty()) return found;
  std::sort(open.begin(), open.end(), [&](std::int32_t a, std::int32_t b) {
    return questions[a].before != questions[b].before ? questions[a].before < questions[b].before : a < b;
  });
  std::vector<std::int32_t> bit_of(flat.nodes.size(), -1);
  for (std::size_t begin = 0; begin < open.size();) {
    // A batch: questions about at most 64 * kMaxWords different first steps.
    std::vector<std::int32_t> firsts;
    std::size_t end = begin;
    for (; end < open.size(); ++end) {
      const std::int32_t before = questions[open[end]].before;
      if (bit_of[before] >= 0) continue;
      if (firsts.size() == 64 * kMaxWords) break;
      bit_of[before] = static_cast<std::int32_t>(firsts.size());
      firsts.push_back(before);
    }
    std::vector<std::int32_t> batch(open.begin() + begin, open.begin() + end);
    std::sort(batch.begin(), batch.end(),
              [&](std::int32_t a, std::int32_t b) { return questions[a].after < questions[b].after; });
    std::vector<std::int32_t> first_of(flat.nodes.size(),
                                       -1);  // place in `batch` of the first question on a node
    for (std::size_t i = batch.size(); i-- > 0;)
      first_of[questions[batch[i]].after] = static_cast<std::int32_t>(i);
    const int words = static_cast<int>((firsts.size() + 63) / 64);
    walk(flat, progress, words, active, [&](std::int32_t node, std::uint64_t* bits) {
      for (std::int32_t i = first_of[node]; i >= 0 && i < static_cast<std::int32_t>(batch.size()); ++i) {
        const OrderQuestion& q = questions[batch[i]];
        if (q.after != node) break;
        const std::int32_t bit = bit_of[q.before];
        if ((bits[bit / 64] >> (bit % 64) & 1) == 0) found.push_back(batch[i]);
      }
      if (const std::int32_t bit = bit_of[node]; bit >= 0) bits[bit / 64] |= std::uint64_t{1} << (bit % 64);
    });
    for (std::int32_t node : firsts) bit_of[node] = -1;
    begin = end;
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tamaki::proof
