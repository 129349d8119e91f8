#pragma once
// Data whose result is known exactly, for every type and operation, whatever the order of combination: sums of small
// integers that the type holds exactly, products of powers of two, and so on. Data repeats every kPeriod elements (a
// prime, so that a block in the wrong place is seen), which makes filling and checking run at memory speed.

#include <cstddef>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace tamaki::tools {

inline constexpr std::size_t kPeriod = 1021;

struct ReducedData {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;
};

/// kPeriod elements: what `rank` contributes.
std::vector<std::byte> contribution(const ReducedData& data, int rank);
/// kPeriod elements: the result over all ranks.
std::vector<std::byte> reduced(const ReducedData& data);
/// kPeriod elements of arbitrary bits, different for each (source, block): for collectives that only move.
std::vector<std::byte> moved(DataType type, int source, int block);

/// Elements [start, start + count) of the endless repetition of `table`, to `to` (any alignment).
void fill_from(const std::vector<std::byte>& table, std::size_t start, std::size_t element_bytes, std::size_t count,
               std::byte* to);

struct Wrong {
  std::size_t count = 0;
  std::string first;  // "element 5 is 3, not 4"; empty without any
};
/// Compares in the same way. Equal bits are right; any NaN is as good as another; where `op` may leave either zero
/// (sums, products, averages), -0 is as good as +0. `at`: number of the first element, for the message.
void compare_with(const std::vector<std::byte>& table, std::size_t start, DataType type, ReduceOp op, bool reduces,
                  std::size_t count, const std::byte* data, std::size_t at, Wrong* wrong);

}  // namespace tamaki::tools
