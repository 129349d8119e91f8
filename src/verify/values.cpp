#include "verify/values.hpp"

#include <algorithm>
#include <bit>

namespace tamaki::proof {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

bool SetTable::unite(RankSet a, RankSet b, RankSet* both) {
  if (is_run(a) && is_run(b)) {
    const int distance = (begin_of(b) - begin_of(a) + ranks_) % ranks_, total = size_of(a) + size_of(b);
    if (distance < size_of(a) || distance + size_of(b) > ranks_) return false;
    const bool after = distance == size_of(a), before = distance + size_of(b) == ranks_;
    if (after || before) {
      const int begin = total == ranks_ ? 0 : after ? begin_of(a) : begin_of(b);
      *both = std::uint64_t(begin) << 32 | static_cast<std::uint32_t>(total);
      return true;
    }
  }
  const Pair key{std::min(a, b), std::max(a, b)};
  if (const auto known = unions_.find(key); known != unions_.end()) return *both = known->second, true;
  std::vector<std::uint64_t> x(words_, 0), y(words_, 0);
  add_to(a, x.data());
  add_to(b, y.data());
  for (int w = 0; w < words_; ++w) {
    if ((x[w] & y[w]) != 0) return false;
    x[w] |= y[w];
  }
  *both = unions_[key] = intern(x);
  return true;
}

void SetTable::add_to(RankSet set, std::uint64_t* words) const {
  if (!is_run(set)) {
    const std::uint64_t* from = pool_.data() + (set & ~kTable) * words_;
    for (int w = 0; w < words_; ++w) words[w] |= from[w];
    return;
  }
  for (int i = 0; i < size_of(set); ++i) {
    const int rank = (begin_of(set) + i) % ranks_;
    words[rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
}

RankSet SetTable::intern(const std::vector<std::uint64_t>& words) {
  const auto has = [&](int rank) { return (words[rank / 64] >> (rank % 64) & 1) != 0; };
  int count = 0, begins = 0, begin = 0;
  for (int w = 0; w < words_; ++w) count += std::popcount(words[w]);
  for (int rank = 0; rank < ranks_ && begins < 2; ++rank)
    if (has(rank) && !has((rank + ranks_ - 1) % ranks_)) ++begins, begin = rank;
  if (count == ranks_) return all();
  if (begins == 1) return std::uint64_t(begin) << 32 | static_cast<std::uint32_t>(count);
  std::uint64_t hash = 0;
  for (std::uint64_t w : words) hash = mix(hash ^ w);
  for (auto [i, end] = by_hash_.equal_range(hash); i != end; ++i)
    if (std::equal(words.begin(), words.end(), pool_.begin() + i->second * words_))
      return kTable | i->second;
  const std::uint64_t number = pool_.size() / words_;
  pool_.insert(pool_.end(), words.begin(), words.end());
  by_hash_.emplace(hash, number);
  return kTable | number;
}

bool SetTable::contains(RankSet set, int rank) const {
  if (is_run(set)) return (rank - begin_of(set) + ranks_) % ranks_ < size_of(set);
  return (pool_[(set & ~kTable) * words_ + rank / 64] >> (rank % 64) & 1) != 0;
}

std::vector<int> SetTable::members(RankSet set) const {
  std::vector<int> found;
  for (int rank = 0; rank < ranks_; ++rank)
    if (contains(set, rank)) found.push_back(rank);
  return found;
}

std::string runs_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (j > i) text += (j == i + 1 ? ", " : "..") + std::to_string(numbers[j]);
    i = j + 1;
  }
  return text;
}

std::string SetTable::text(RankSet set) const { return runs_text(members(set)); }

std::string SetTable::missing(RankSet set) const {
  std::vector<int> found;
  for (int rank = 0; rank < ranks_; ++rank)
    if (!contains(set, rank)) found.push_back(rank);
  return runs_text(found);
}

std::string SetTable::common(RankSet a, RankSet b) const {
  std::vector<int> found;
  for (int rank = 0; rank < ranks_; ++rank)
    if (contains(a, rank) && contains(b, rank)) found.push_back(rank);
  return runs_text(found);
}

std::uint64_t leaf_expression(int rank) { return mix(static_cast<std::uint64_t>(rank) + 1); }

void ExpressionFold::add(std::uint64_t source) {
  // a op b and b op a have the same bits; further sources are combined with that result in turn.
  if (count_ == 0)
    value_ = source;
  else if (count_ == 1)
    value_ = mix(std::min(value_, source) ^ mix(std::max(value_, source)));
  else
    value_ = mix(value_ ^ mix(source ^ 0xa5a5a5a5a5a5a5a5u));
  ++count_;
}

std::uint64_t ExpressionFold::result() const {
  return count_ <= 1 ? value_ : mix(value_ ^ static_cast<std::uint64_t>(count_));  // rounded once a step
}

}  // namespace tamaki::proof
