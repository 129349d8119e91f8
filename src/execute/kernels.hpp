#pragma once
// Reduction and copy kernels on host memory, chosen once per plan for type, operation and the machine's vectors.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace tamaki {

/// A user's reduction: inout[i] = in[i] OP inout[i], `in` from lower ranks (tmkReduceFunction).
using UserReduceFunction = void (*)(const void* in, void* inout, std::size_t count, int type, void* context);

struct KernelArguments {
  std::span<const std::byte* const> sources;  // at least one
  std::span<std::byte* const> destinations;   // at least one
  std::size_t count = 0;                      // elements
  /// Apply the operation's end to the result: avg divides by `ranks`.
  bool finish = false;
  /// Index of a source that is raw input, to be multiplied by the scalar (pre_mul_sum only); -1: none.
  int raw_source = -1;
  /// Destinations will not be read soon and are larger than the caches: stores that bypass them.
  bool stream = false;
};

/// What belongs to an operation besides its kind.
struct OpContext {
  ReduceOp op = ReduceOp::sum;
  DataType type = DataType::float32;
  int ranks = 1;                          // divisor of avg
  alignas(16) std::byte scalar[16] = {};  // pre_mul_sum, one element of `type`
  UserReduceFunction user = nullptr;
  void* user_context = nullptr;
  bool commutative = true;
};

/// destinations[d][i] = finish(sources[0][i] op sources[1][i] op ...), left to right, for all d and i. Any alignment.
/// A destination may be exactly one of the sources; otherwise operands do not overlap. 16- and 8-bit floats accumulate
/// in f32 and are rounded once, to nearest even; fp8 e4m3 saturates. Integers wrap. min and max: a NaN wins, -0 < +0.
/// Every NaN that an operation yields, sums included, is the canonical quiet NaN of the type, so bits depend neither on
/// the place in the buffer nor on the processor. Logical operations give 0 or 1. One source that needs no
/// transformation (move_is_copy()) is copied as it is.
using ReduceKernel = void (*)(const OpContext& context, const KernelArguments& arguments);

/// Null if the pair has no meaning (is_defined()).
ReduceKernel reduce_kernel(ReduceOp op, DataType type);

/// Whether a move of one source needs the reduce kernel (avg at its end, multiplication of raw input, 0/1 of logical
/// operations is NOT applied to moves).
constexpr bool move_is_copy(ReduceOp op, bool finish, bool raw) {
  return !(op == ReduceOp::avg && finish) && !(op == ReduceOp::pre_mul_sum && raw);
}

/// Copies to every destination. Tuned for lines that another core has just written.
void copy_kernel(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes, bool stream);

/// Instruction set the kernels use on this machine, e.g. "AVX3_ZEN4".
const char* kernel_target();

}  // namespace tamaki
