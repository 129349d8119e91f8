#pragma once
// What every algorithm says about the arguments of a Problem, and the arithmetic of ranks.

#include <string>

#include "algorithms/algorithm.hpp"

namespace tamaki {

/// x modulo p, in [0, p), for x >= -p.
constexpr int wrap(int x, int p) { return (x % p + p) % p; }

/// Smallest e with base^e >= p (0 for p = 1). base >= 2.
constexpr int ceil_log(int p, int base) {
  int e = 0;
  for (long long power = 1; power < p; power *= base) ++e;
  return e;
}

constexpr bool is_power_of_two(int p) { return p > 0 && (p & (p - 1)) == 0; }

/// Largest power of two that is at most p. p >= 1.
constexpr int floor_power_of_two(int p) {
  int power = 1;
  while (power <= p / 2) power *= 2;
  return power;
}

/// Reason why no algorithm can build this problem, with names, numbers and ranges; empty where one can.
inline std::string refuse_bad_arguments(const Topology&, const Problem& problem) {
  const auto bad = [](const char* name, int value, const std::string& range) {
    return std::string(name) + " is " + std::to_string(value) + ", must be " + range;
  };
  if (problem.ranks < 1 || problem.ranks > 65'535) return bad("ranks", problem.ranks, "1..65535");
  if (problem.root < 0 || problem.root >= problem.ranks)
    return bad("root", problem.root, "0.." + std::to_string(problem.ranks - 1));
  if (problem.lanes < 1 || problem.lanes > 1024) return bad("lanes", problem.lanes, "1..1024");
  if (problem.radix < 2) return bad("radix", problem.radix, "2 or more");
  if (problem.pieces < 1) return bad("pieces", problem.pieces, "1 or more");
  return {};
}

/// The same, for algorithms that combine contributions in another order than that of the ranks.
inline std::string refuse_reordering(const Topology& topology, const Problem& problem) {
  if (std::string reason = refuse_bad_arguments(topology, problem); !reason.empty()) return reason;
  if (!problem.commutative && problem.ranks > 1)
    return "combines out of rank order, and the operation is not commutative";
  return {};
}

}  // namespace tamaki
