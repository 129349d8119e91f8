#pragma once
// The oracle of collective tests: inputs for every type and operation, and the result of an allreduce in
// wide arithmetic.
//
// Inputs::exact are chosen so that every order of combination, with every rounding on the way, gives the
// same exact result: small integers whose sums stay within the type's precision, products of few twos.
// Compare with expect_exact. Inputs::rough are arbitrary moderate values: compare with tolerance().
// Integers are arbitrary and exact either way.
//
// A rank makes its own input from (seed, rank, ranks) alone, so processes need not exchange anything to
// know what to expect.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/element.hpp"

namespace tamaki::test {

enum class Inputs { exact, rough };

/// A well-mixed number out of a seed and two positions (splitmix64).
inline std::uint64_t mix(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) {
  std::uint64_t z = seed + 0x9E3779B97F4A7C15u * (a + 1) + 0xD1B54A32D192ED03u * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Bits of precision of a float type, the hidden one included (of a complex type: of its parts).
inline int precision(DataType type) {
  if (is_small_float(type)) return small_float(type).mantissa_bits + 1;
  return type == DataType::float32 || type == DataType::complex64 ? 24 : 53;
}

/// The scalar of pre_mul_sum that keeps Inputs::exact exact: 2 (integers: 3).
inline void set_test_scalar(OpContext* context) {
  for (std::byte& b : context->scalar) b = std::byte{0};
  if (is_complex(context->type)) {
    write_float(context->type == DataType::complex64 ? DataType::float32 : DataType::float64, 2,
                context->scalar);
  } else if (is_float(context->type)) {
    write_float(context->type, 2, context->scalar);
  } else {
    write_integer(context->type, 3, context->scalar);
  }
}

namespace detail {

/// Exact and rough values of floats, by operation. `budget`: the largest sum of magnitudes that is exact.
inline double float_input(DataType type, ReduceOp op, std::uint64_t seed, int rank, int ranks,
                          std::size_t i, Inputs kind) {
  const std::uint64_t own = mix(seed, i, static_cast<std::uint64_t>(rank) + 1);
  const double sign = (own & 1) != 0 ? -1 : 1;
  const bool product = op == ReduceOp::prod;
  if (kind == Inputs::rough && !product) {
    const double range = precision(type) <= 4 ? 4 : 100;
    return sign * range * static_cast<double>((own >> 11) % 10007) / 10007.0;
  }
  // A window of ranks, at a place that depends on the element, holds something; the rest holds the neutral
  // value.
  const std::uint64_t shared = mix(seed, i);
  const int offset =
      static_cast<int>((static_cast<std::uint64_t>(rank) + shared) % static_cast<std::uint64_t>(ranks));
  if (product) return offset < 3 ? sign * ((own >> 8) % 2 == 0 ? 2.0 : 0.5) : sign;
  if (op == ReduceOp::logical_and) return offset == 0 && (shared >> 40) % 2 == 0 ? 0.0 : sign;
  if (op == ReduceOp::logical_or || op == ReduceOp::logical_xor)
    return offset < 2 && (own >> 8) % 2 == 0 ? sign : 0.0;
  const int budget = 1 << std::min(precision(type), 20);
  if (op == ReduceOp::min || op == ReduceOp::max)
    return sign * static_cast<double>((own >> 8) % (budget / 2 + 1));
  if (offset >= budget) return 0;
  const int each = std::max(1, budget / std::max(1, ranks));
  return sign * static_cast<double>((own >> 8) % static_cast<std::uint64_t>(std::min(each, 1000) + 1));
}

}  // namespace detail

/// Fills a rank's input: out.size() / size_of(type) elements, the first one being element `first` of the
/// vector.
inline void fill_input(DataType type, ReduceOp op, std::uint64_t seed, int rank, int ranks, Inputs kind,
                       std::span<std::byte> out, std::size_t first = 0) {
  const std::size_t size = size_of(type);
  for (std::size_t n = 0; n < out.size() / size; ++n) {
    std::byte* const p = out.data() + n * size;
    const std::size_t i = first + n;
    if (is_complex(type)) {
      const DataType part = type == DataType::complex64 ? DataType::float32 : DataType::float64;
      const double value = detail::float_input(part, op, seed, rank, ranks, i, kind);
      // Products of complex numbers stay exact if each is real or imaginary.
      const bool turned = (mix(seed, i, static_cast<std::uint64_t>(rank) + 1000003) & 1) != 0;
      const bool both = op != ReduceOp::prod && op != ReduceOp::pre_mul_sum;
      write_float(part, both || !turned ? value : 0, p);
      write_float(part, both || turned ? -value : 0, p + size / 2);
    } else if (is_float(type)) {
      write_float(type, detail::float_input(type, op, seed, rank, ranks, i, kind), p);
    } else {
      const std::uint64_t own = mix(seed, i, static_cast<std::uint64_t>(rank) + 1);
      const bool logical =
          op == ReduceOp::logical_and || op == ReduceOp::logical_or || op == ReduceOp::logical_xor;
      write_integer(type, logical ? static_cast<__int128>((own >> 8) % 3) : static_cast<__int128>(own), p);
    }
  }
}

/// The inputs of all ranks, `count` elements each.
inline std::vector<std::vector<std::byte>> make_inputs(DataType type, ReduceOp op, std::uint64_t seed,
                                                       int ranks, std::size_t count, Inputs kind) {
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    inputs[rank].resize(count * size_of(type));
    fill_input(type, op, seed, rank, ranks, kind, inputs[rank]);
  }
  return inputs;
}

/// An allreduce's result in wide arithmetic: real parts (and imaginary ones after them) of the exact
/// values, or integers modulo the type; and what a tolerance needs.
struct Expected {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;
  std::vector<std::byte> bytes;         // rounded to the type: what Inputs::exact must give, bit for bit
  std::vector<long double> values;      // floats: per real lane (complex: two per element)
  std::vector<long double> magnitudes;  // sum of |x|, or |product|, per lane
};

/// `context`: op, type, ranks and (pre_mul_sum) scalar, which applies to every rank's input. Not for user
/// operations.
inline Expected expect_allreduce(const OpContext& context,
                                 const std::vector<std::vector<std::byte>>& inputs) {
  Expected e{context.type, context.op, static_cast<int>(inputs.size()), {}, {}, {}};
  const std::size_t size = size_of(context.type);
  const std::size_t count = inputs[0].size() / size;
  e.bytes.resize(inputs[0].size());
  const bool scaled = context.op == ReduceOp::pre_mul_sum;
  if (!is_float(context.type) && !is_complex(context.type)) {
    const __int128 scalar = scaled ? read_integer(context.type, context.scalar) : 1;
    for (std::size_t i = 0; i < count; ++i) {
      __int128 sum = 0;
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        __int128 x = read_integer(context.type, inputs[r].data() + i * size);
        if (scaled) x = detail::combine_integer(ReduceOp::prod, x, scalar);
        sum = r == 0 ? x : detail::combine_integer(context.op, sum, x);
      }
      write_integer(context.type, sum, e.bytes.data() + i * size);
      if (context.op == ReduceOp::avg) {  // of the wrapped sum
        write_integer(context.type, read_integer(context.type, e.bytes.data() + i * size) / e.ranks,
                      e.bytes.data() + i * size);
      }
    }
    return e;
  }
  const bool complex = is_complex(context.type);
  const DataType part = !complex ? context.type : size == 8 ? DataType::float32 : DataType::float64;
  const std::size_t lane = complex ? size / 2 : size;
  using Wide = detail::Complex<long double>;
  const auto read = [&](const std::byte* p) {
    return Wide{read_float(part, p), complex ? static_cast<long double>(read_float(part, p + lane)) : 0.0L};
  };
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum{};
    long double magnitude[2] = {0, 0};
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      Wide x = read(inputs[r].data() + i * size);
      if (scaled) x = detail::multiply(x, read(context.scalar));
      if (r == 0) {
        sum = x;
      } else if (complex) {
        sum = detail::combine_complex(context.op, sum, x);
      } else {
        sum.re = detail::combine_float(context.op, sum.re, x.re);
      }
      magnitude[0] += std::fabs(x.re);
      magnitude[1] += std::fabs(x.im);
    }
    if (context.op == ReduceOp::prod) magnitude[0] = magnitude[1] = std::fabs(sum.re) + std::fabs(sum.im);
    const auto put = [&](long double value, long double m, std::size_t k) {
      // avg divides in the type's arithmetic; long double in between would round twice.
      double narrow = static_cast<double>(value);
      if (context.op == ReduceOp::avg) {
        narrow = part == DataType::float64 ? narrow / e.ranks
                                           : static_cast<float>(narrow) / static_cast<float>(e.ranks);
        value /= e.ranks;
        m /= e.ranks;
      }
      write_float(part, narrow, e.bytes.data() + i * size + k * lane);
      e.values.push_back(value);
      e.magnitudes.push_back(m);
    };
    put(sum.re, magnitude[0], 0);
    if (complex) put(sum.im, magnitude[1], 1);
  }
  return e;
}

/// How far a lane may be from its exact value, with Inputs::rough: each of up to ranks + 1 roundings is off
/// by at most half of the last place of what it rounds, which never exceeds the sum of magnitudes, grown by
/// the roundings before. Zero for operations that do not round. With fp8 and many ranks this is more than
/// the value itself: use exact inputs.
inline long double tolerance(const Expected& e, std::size_t lane) {
  const bool rounds = e.op == ReduceOp::sum || e.op == ReduceOp::avg || e.op == ReduceOp::prod ||
                      e.op == ReduceOp::pre_mul_sum;
  if (!rounds) return 0;
  // A product of complex numbers rounds three times in each step.
  const int roundings = (e.ranks + 1) * (is_complex(e.type) && e.op == ReduceOp::prod ? 3 : 1);
  const long double half_place = std::ldexp(1.0L, -precision(e.type));
  const long double smallest =
      is_small_float(e.type)
          ? std::ldexp(1.0L, 1 - small_float(e.type).bias() - small_float(e.type).mantissa_bits)
          : 1e-45L;
  return (std::pow(1 + half_place, roundings) - 1) * e.magnitudes[lane] + roundings * smallest;
}

namespace detail {

/// Bitwise, but for products of complex numbers: the sign of a zero part depends on the order of
/// multiplication.
inline bool same_element(const Expected& e, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, size_of(e.type)) == 0) return true;
  if (!is_complex(e.type) || e.op != ReduceOp::prod) return false;
  const DataType part = e.type == DataType::complex64 ? DataType::float32 : DataType::float64;
  return read_float(part, a) == read_float(part, b) &&
         read_float(part, a + size_of(part)) == read_float(part, b + size_of(part));
}

}  // namespace detail

/// Empty, or where and how `actual` differs from the expected bits.
inline std::optional<std::string> differs_exactly(const Expected& e, std::span<const std::byte> actual) {
  if (actual.size() != e.bytes.size()) return "wrong size " + std::to_string(actual.size());
  const std::size_t size = size_of(e.type);
  for (std::size_t i = 0; i < actual.size() / size; ++i) {
    if (detail::same_element(e, actual.data() + i * size, e.bytes.data() + i * size)) continue;
    std::string text = "element " + std::to_string(i) + " of " + std::to_string(actual.size() / size) +
                       " (" + std::string(name_of(e.type)) + " " + std::string(name_of(e.op)) + "): got 0x";
    char hex[3];
    for (std::size_t b = size; b-- > 0;) {
      std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned>(actual[i * size + b]));
      text += hex;
    }
    text += ", expected 0x";
    for (std::size_t b = size; b-- > 0;) {
      std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned>(e.bytes[i * size + b]));
      text += hex;
    }
    return text;
  }
  return std::nullopt;
}

/// The same within tolerance(); integers and operations that do not round are compared exactly.
inline std::optional<std::string> differs(const Expected& e, std::span<const std::byte> actual) {
  if (e.values.empty()) return differs_exactly(e, actual);
  if (actual.size() != e.bytes.size()) return "wrong size " + std::to_string(actual.size());
  const bool complex = is_complex(e.type);
  const std::size_t lane = complex ? size_of(e.type) / 2 : size_of(e.type);
  const DataType part = !complex ? e.type : lane == 4 ? DataType::float32 : DataType::float64;
  for (std::size_t k = 0; k < e.values.size(); ++k) {
    const long double got = read_float(part, actual.data() + k * lane);
    if (std::isnan(got) ? std::isnan(e.values[k]) : std::fabs(got - e.values[k]) <= tolerance(e, k))
      continue;
    char text[200];
    std::snprintf(text, sizeof(text), "%s %zu: got %.17Lg, expected %.17Lg within %.3Lg (%s %s, %d ranks)",
                  complex ? "part" : "element", k, got, e.values[k], tolerance(e, k),
                  std::string(name_of(e.type)).c_str(), std::string(name_of(e.op)).c_str(), e.ranks);
    return text;
  }
  return std::nullopt;
}

}  // namespace tamaki::test
