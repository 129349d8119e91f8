#pragma once
// One element at a time, the slow and obvious way: what the kernels must give, bit for bit. Independent of
// them: small floats are decoded by ldexp and rounded by nearbyint, integers are computed in 128 bits or
// modulo.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "execute/kernels.hpp"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace tamaki::test {

/// A float format of 16 or 8 bits. finite: no infinities (OCP E4M3).
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool finite;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

inline bool is_small_float(DataType type) { return is_float(type) && size_of(type) <= 2; }

inline SmallFloat small_float(DataType type) {
  switch (type) {
    case DataType::float16:
      return {5, 10, false};
    case DataType::bfloat16:
      return {8, 7, false};
    case DataType::float8e4m3:
      return {4, 3, true};
    default:
      return {5, 2, false};
  }
}

inline double decode_small(SmallFloat f, unsigned bits) {
  const unsigned mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const bool negative = (bits >> (f.exponent_bits + f.mantissa_bits)) & 1u;
  const int top = (1 << f.exponent_bits) - 1;
  double value;
  if (exponent == top && f.finite && mantissa == (1u << f.mantissa_bits) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == top && !f.finite) {
    value =
        mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - f.bias() - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa + (1u << f.mantissa_bits)),
                       exponent - f.bias() - f.mantissa_bits);
  }
  return negative ? -value : value;
}

/// Rounded to nearest even, once. NaN: the canonical quiet one. Too large: infinity, or the largest value
/// if finite.
inline unsigned encode_small(SmallFloat f, double value) {
  const int top = (1 << f.exponent_bits) - 1;
  const unsigned infinity = static_cast<unsigned>(top) << f.mantissa_bits;
  const unsigned ones = (1u << f.mantissa_bits) - 1;
  if (std::isnan(value)) return f.finite ? infinity | ones : infinity | (1u << (f.mantissa_bits - 1));
  const unsigned sign = std::signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0u;
  const unsigned largest = f.finite ? (infinity | ones) - 1 : infinity - 1;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | (f.finite ? largest : infinity);
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  const double quantum = std::ldexp(1.0, exponent - f.mantissa_bits);
  const double rounded = std::nearbyint(magnitude / quantum) * quantum;
  if (rounded > decode_small(f, largest)) return sign | (f.finite ? largest : infinity);
  const int e = rounded == 0 ? 1 - f.bias() : std::max(std::ilogb(rounded), 1 - f.bias());
  const auto steps = static_cast<unsigned>(std::ldexp(rounded, f.mantissa_bits - e));
  if (steps < (1u << f.mantissa_bits)) return sign | steps;  // subnormal or zero
  return sign | (static_cast<unsigned>(e + f.bias()) << f.mantissa_bits) |
         (steps - (1u << f.mantissa_bits));
}

/// A real value of a float type.
inline double read_float(DataType type, const std::byte* p) {
  if (is_small_float(type)) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, p, size_of(type));
    return decode_small(small_float(type), bits);
  }
  if (size_of(type) == 4) {
    float value;
    std::memcpy(&value, p, 4);
    return value;
  }
  double value;
  std::memcpy(&value, p, 8);
  return value;
}

/// Rounds `value` to the type; every NaN becomes canonical.
inline void write_float(DataType type, double value, std::byte* p) {
  if (is_small_float(type)) {
    const auto bits = static_cast<std::uint16_t>(encode_small(small_float(type), value));
    std::memcpy(p, &bits, size_of(type));  // little endian
  } else if (size_of(type) == 4) {
    const auto narrow = static_cast<float>(value);
    const std::uint32_t quiet = 0x7FC00000u;
    std::memcpy(p, &narrow, 4);
    if (std::isnan(value)) std::memcpy(p, &quiet, 4);
  } else {
    const std::uint64_t quiet = 0x7FF8000000000000u;
    std::memcpy(p, &value, 8);
    if (std::isnan(value)) std::memcpy(p, &quiet, 8);
  }
}

inline bool is_signed_integer(DataType type) { return is_integer(type) && static_cast<int>(type) % 2 == 0; }

/// Integers and bytes as a number that their type can hold.
inline __int128 read_integer(DataType type, const std::byte* p) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, p, size_of(type));
  if (!is_signed_integer(type)) return static_cast<__int128>(bits);
  const int unused = 64 - 8 * static_cast<int>(size_of(type));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

/// Modulo two to the type's bits.
inline void write_integer(DataType type, __int128 value, std::byte* p) {
  const auto bits = static_cast<std::uint64_t>(value);
  std::memcpy(p, &bits, size_of(type));
}

namespace detail {

/// T: the arithmetic of the type (f32 for the small floats).
template <class T>
T combine_float(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
    case ReduceOp::max: {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      const bool a_first = a < b || (a == b && std::signbit(a));
      return (op == ReduceOp::min) == a_first ? a : b;
    }
    case ReduceOp::logical_and:
      return (a != 0) && (b != 0);
    case ReduceOp::logical_or:
      return (a != 0) || (b != 0);
    case ReduceOp::logical_xor:
      return (a != 0) != (b != 0);
    default:
      return a + b;
  }
}

template <class T>
struct Complex {
  T re;
  T im;
};
template <class T>
Complex<T> multiply(Complex<T> a, Complex<T> b) {
  const T ac = a.re * b.re, bd = a.im * b.im, ad = a.re * b.im, bc = a.im * b.re;
  return {ac - bd, ad + bc};
}
template <class T>
Complex<T> combine_complex(ReduceOp op, Complex<T> a, Complex<T> b) {
  const bool x = a.re != 0 || a.im != 0, y = b.re != 0 || b.im != 0;
  switch (op) {
    case ReduceOp::prod:
      return multiply(a, b);
    case ReduceOp::logical_and:
      return {static_cast<T>(x && y), 0};
    case ReduceOp::logical_or:
      return {static_cast<T>(x || y), 0};
    case ReduceOp::logical_xor:
      return {static_cast<T>(x != y), 0};
    default:
      return {a.re + b.re, a.im + b.im};
  }
}

inline __int128 combine_integer(ReduceOp op, __int128 a, __int128 b) {
  switch (op) {
    case ReduceOp::prod:  // unsigned: the product of two 64-bit numbers taken modulo needs no more
      return static_cast<__int128>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a < b ? b : a;
    case ReduceOp::bit_and:
      return a & b;
    case ReduceOp::bit_or:
      return a | b;
    case ReduceOp::bit_xor:
      return a ^ b;
    case ReduceOp::logical_and:
      return (a != 0) && (b != 0);
    case ReduceOp::logical_or:
      return (a != 0) || (b != 0);
    case ReduceOp::logical_xor:
      return (a != 0) != (b != 0);
    default:
      return a + b;
  }
}

template <class T>
void fold_float(const OpContext& c, std::span<const std::byte* const> sources, std::size_t at, bool finish,
                int raw, std::byte* out) {
  const auto scalar = static_cast<T>(read_float(c.type, c.scalar));
  T sum = 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    T x = static_cast<T>(read_float(c.type, sources[k] + at));
    if (static_cast<int>(k) == raw) x = x * scalar;
    sum = k == 0 ? x : combine_float<T>(c.op, sum, x);
  }
  if (finish && c.op == ReduceOp::avg) sum = sum / static_cast<T>(c.ranks);
  write_float(c.type, static_cast<double>(sum), out);
}

template <class T>
void fold_complex(const OpContext& c, std::span<const std::byte* const> sources, std::size_t at,
                  bool finish, int raw, std::byte* out) {
  const DataType part = sizeof(T) == 4 ? DataType::float32 : DataType::float64;
  const auto read = [&](const std::byte* p) {
    return Complex<T>{static_cast<T>(read_float(part, p)), static_cast<T>(read_float(part, p + sizeof(T)))};
  };
  Complex<T> sum{};
  for (std::size_t k = 0; k < sources.size(); ++k) {
    Complex<T> x = read(sources[k] + at);
    if (static_cast<int>(k) == raw) x = multiply(x, read(c.scalar));
    sum = k == 0 ? x : combine_complex<T>(c.op, sum, x);
  }
  if (finish && c.op == ReduceOp::avg)
    sum = {sum.re / static_cast<T>(c.ranks), sum.im / static_cast<T>(c.ranks)};
  write_float(part, static_cast<double>(sum.re), out);
  write_float(part, static_cast<double>(sum.im), out + sizeof(T));
}

inline void fold_integer(const OpContext& c, std::span<const std::byte* const> sources, std::size_t at,
                         bool finish, int raw, std::byte* out) {
  // Every step wraps to the type, as its neighbours on the wire would see it.
  const auto wrap = [&](__int128 value) {
    std::byte bytes[16];
    write_integer(c.type, value, bytes);
    return read_integer(c.type, bytes);
  };
  __int128 sum = 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    __int128 x = read_integer(c.type, sources[k] + at);
    if (static_cast<int>(k) == raw)
      x = wrap(combine_integer(ReduceOp::prod, x, read_integer(c.type, c.scalar)));
    sum = k == 0 ? x : wrap(combine_integer(c.op, sum, x));
  }
  if (finish && c.op == ReduceOp::avg) sum = sum / c.ranks;
  write_integer(c.type, sum, out);
}

}  // namespace detail

/// What a reduce kernel must write to each destination: `count` elements of context.type, for every
/// predefined operation and pre_mul_sum (raw: index of the raw source, or -1).
inline std::vector<std::byte> fold(const OpContext& context, std::span<const std::byte* const> sources,
                                   std::size_t count, bool finish = false, int raw = -1) {
  const std::size_t size = size_of(context.type);
  std::vector<std::byte> result(count * size);
  if (sources.size() == 1 && move_is_copy(context.op, finish, raw >= 0)) {
    if (count != 0) std::memcpy(result.data(), sources[0], count * size);
    return result;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const out = result.data() + i * size;
    if (context.type == DataType::complex64) {
      detail::fold_complex<float>(context, sources, i * size, finish, raw, out);
    } else if (context.type == DataType::complex128) {
      detail::fold_complex<double>(context, sources, i * size, finish, raw, out);
    } else if (context.type == DataType::float64) {
      detail::fold_float<double>(context, sources, i * size, finish, raw, out);
    } else if (is_float(context.type)) {
      detail::fold_float<float>(context, sources, i * size, finish, raw, out);
    } else {
      detail::fold_integer(context, sources, i * size, finish, raw, out);
    }
  }
  return result;
}

}  // namespace tamaki::test
