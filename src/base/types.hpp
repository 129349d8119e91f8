#pragma once
// Data types, reduction operations and collectives: the vocabulary of every layer.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tamaki {

/// Values equal those of tmkDataType_t.
enum class DataType : std::uint8_t {
  int8, uint8, int16, uint16, int32, uint32, int64, uint64,
  float16, bfloat16, float32, float64, float8e4m3, float8e5m2, complex64, complex128, bytes,
};
inline constexpr int kDataTypes = 17;

/// Values of the predefined ones equal those of tmkOp_t.
enum class ReduceOp : std::uint8_t {
  sum, prod, min, max, avg, bit_and, bit_or, bit_xor, logical_and, logical_or, logical_xor,
  pre_mul_sum,  // sum of scalar * x
  user,         // a function of the caller
};
inline constexpr int kPredefinedOps = 11;

enum class Collective : std::uint8_t {
  allreduce, reduce, broadcast, allgather, reduce_scatter, gather, scatter, alltoall, barrier,
  send_recv,  // point to point
};
inline constexpr int kCollectives = 9;  // those that have algorithms

constexpr std::size_t size_of(DataType type) {
  constexpr std::uint8_t sizes[kDataTypes] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 8, 16, 1};
  return sizes[static_cast<int>(type)];
}

/// "f32", "i8", ...: the names of options, reports and the command.
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Collective collective);
std::optional<DataType> parse_data_type(std::string_view name);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);
std::optional<Collective> parse_collective(std::string_view name);

constexpr bool is_float(DataType t) {
  return t == DataType::float16 || t == DataType::bfloat16 || t == DataType::float32 || t == DataType::float64 ||
         t == DataType::float8e4m3 || t == DataType::float8e5m2;
}
constexpr bool is_complex(DataType t) { return t == DataType::complex64 || t == DataType::complex128; }
constexpr bool is_integer(DataType t) { return t <= DataType::uint64; }

/// Which (type, op) pairs have a meaning: min and max need an order (not complex), bitwise operations need
/// integers or raw bytes, raw bytes take only bitwise operations, user functions take every type.
constexpr bool is_defined(ReduceOp op, DataType type) {
  if (op == ReduceOp::user) return true;
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  if (bitwise) return is_integer(type) || type == DataType::bytes;
  if (type == DataType::bytes) return false;
  if (op == ReduceOp::min || op == ReduceOp::max) return !is_complex(type);
  return true;
}

constexpr bool reduces(Collective c) {
  return c == Collective::allreduce || c == Collective::reduce || c == Collective::reduce_scatter;
}

}  // namespace tamaki
