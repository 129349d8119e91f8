#include "perf/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tamaki::tools {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b * 0xd6e8feb86659fd93u); }

// ---- floating point formats ----

struct Format {
  int exponent_bits, mantissa_bits, bias;
  std::uint64_t nan;
};
Format format_of(DataType type) {
  switch (type) {
    case DataType::float16: return {5, 10, 15, 0x7e00};
    case DataType::bfloat16: return {8, 7, 127, 0x7fc0};
    case DataType::float8e4m3: return {4, 3, 7, 0x7f};
    case DataType::float8e5m2: return {5, 2, 15, 0x7e};
    case DataType::float64: case DataType::complex128: return {11, 52, 1023, 0x7ff8000000000000u};
    default: return {8, 23, 127, 0x7fc00000};
  }
}
/// Largest M such that all integers of [-M, M] are exact.
double exact_range(DataType type) { return std::ldexp(1.0, format_of(type).mantissa_bits + 1); }

/// Bits of `value`, which the format holds exactly as a normal number, zero or NaN.
std::uint64_t encode(double value, DataType type) {
  const Format f = format_of(type);
  if (std::isnan(value)) return f.nan;
  std::uint64_t bits = std::signbit(value) ? std::uint64_t{1} << (f.exponent_bits + f.mantissa_bits) : 0;
  if (value == 0) return bits;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent) * 2 - 1;
  bits |= static_cast<std::uint64_t>(exponent - 1 + f.bias) << f.mantissa_bits;
  return bits | static_cast<std::uint64_t>(std::ldexp(fraction, f.mantissa_bits));
}
double decode(std::uint64_t bits, DataType type) {
  const Format f = format_of(type);
  const auto exponent = static_cast<int>(bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
  const auto mantissa = static_cast<double>(bits & ((std::uint64_t{1} << f.mantissa_bits) - 1));
  const bool negative = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
  const bool top = exponent == (1 << f.exponent_bits) - 1;
  double value = exponent == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                               : std::ldexp(1 + std::ldexp(mantissa, -f.mantissa_bits), exponent - f.bias);
  if (type == DataType::float8e4m3) {
    if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<double>::quiet_NaN();
  } else if (top) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return negative ? -value : value;
}

bool is_signed(DataType t) {
  return t == DataType::int8 || t == DataType::int16 || t == DataType::int32 || t == DataType::int64;
}
std::int64_t sign_extend(std::uint64_t bits, std::size_t bytes) {
  const int shift = 64 - 8 * static_cast<int>(bytes);
  return static_cast<std::int64_t>(bits << shift) >> shift;
}
std::uint64_t truncate(std::uint64_t bits, std::size_t bytes) {
  return bytes == 8 ? bits : bits & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

// ---- contributions ----

/// A whole number in [-range, range], by rank, such that any partial sum stays within [-total, total].
double bounded(double total, int ranks, int rank, std::size_t i, std::uint64_t h) {
  const double active = std::min<double>(ranks, total);
  if (static_cast<double>((static_cast<std::size_t>(rank) + i) % static_cast<std::size_t>(ranks)) >= active) return 0;
  const auto range = static_cast<std::uint64_t>(std::min(std::floor(total / active), 1e15));
  return static_cast<double>(h % (2 * range + 1)) - static_cast<double>(range);
}

/// Such that the sum over all ranks is a multiple of their number and partial sums stay within [-total, total].
double averaged(double total, int ranks, int rank, std::size_t i, std::uint64_t common, std::uint64_t pair) {
  const auto range = static_cast<std::uint64_t>(std::min(std::floor(total / (2.0 * ranks)), 1e15));
  if (range >= 1) {  // an average, and deviations that cancel in pairs
    const double mean = static_cast<double>(common % (2 * range + 1)) - static_cast<double>(range);
    const double off = (rank | 1) < ranks ? static_cast<double>(pair % (range + 1)) : 0;
    return mean + (rank % 2 == 0 ? off : -off);
  }
  if (common % 2 == 0 && ranks <= total) return common % 4 == 0 ? 1 : -1;  // all equal
  const int turn = static_cast<int>((static_cast<std::size_t>(rank) / 2 + i) % static_cast<std::size_t>((ranks + 1) / 2));
  return (rank | 1) < ranks && turn < total ? (rank % 2 == 0 ? 1 : -1) : 0;
}

bool logical_truth(ReduceOp op, int ranks, std::uint64_t h) {
  const auto rare = h % (2 * static_cast<std::uint64_t>(ranks)) == 0;
  return op == ReduceOp::logical_and ? !rare : op == ReduceOp::logical_or ? rare : h % 2 == 0;
}
bool is_logical(ReduceOp op) {
  return op == ReduceOp::logical_and || op == ReduceOp::logical_or || op == ReduceOp::logical_xor;
}

struct Number {
  std::uint64_t bits = 0;  // integers and bytes
  double part[2] = {0, 0};  // floating point: real, imaginary
};

Number contribute(const ReducedData& d, int rank, std::size_t i) {
  const std::uint64_t h = mix(mix(static_cast<std::uint64_t>(rank) + 1, i), 1), common = mix(i, 77);
  const std::uint64_t pair = mix(mix(static_cast<std::uint64_t>(rank / 2) + 1, i), 2);
  Number n;
  if (!is_float(d.type) && !is_complex(d.type)) {
    const std::size_t bytes = size_of(d.type);
    if (is_logical(d.op)) {
      n.bits = logical_truth(d.op, d.ranks, h) ? (d.ranks == 1 ? 1 : truncate(h >> 8 | 1, bytes)) : 0;
    } else if (d.op == ReduceOp::avg) {  // no overflow: what is averaged is the true sum
      const double total = std::ldexp(1.0, std::min(52, static_cast<int>(8 * bytes) - 1)) - 1;
      const double value = bounded(total, d.ranks, rank, i, h);
      n.bits = truncate(static_cast<std::uint64_t>(static_cast<std::int64_t>(is_signed(d.type) ? value : std::fabs(value))), bytes);
    } else {
      n.bits = truncate(h, bytes);
    }
    return n;
  }
  const double total = exact_range(d.type);
  switch (d.op) {
    case ReduceOp::sum:
      n.part[0] = bounded(total, d.ranks, rank, i, h);
      n.part[1] = bounded(total, d.ranks, rank, i, mix(h));
      break;
    case ReduceOp::avg:
      n.part[0] = averaged(total, d.ranks, rank, i, common, pair);
      n.part[1] = averaged(total, d.ranks, rank, i, mix(common), mix(pair));
      break;
    case ReduceOp::prod: {  // +-2^e, at most four ranks with e != 0; complex: a power of i times that
      const bool active = (static_cast<std::size_t>(rank) + i) % static_cast<std::size_t>(d.ranks) < 4;
      const double value = (h & 1 ? -1 : 1) * std::ldexp(1.0, active ? static_cast<int>(h / 2 % 3) - 1 : 0);
      n.part[is_complex(d.type) && (h & 64) ? 1 : 0] = value;
      break;
    }
    case ReduceOp::min: case ReduceOp::max: {
      const double range = std::min(total, 1024.0);
      n.part[0] = static_cast<double>(h % static_cast<std::uint64_t>(2 * range + 1)) - range;
      if (common % 5 == 0) n.part[0] = h & 1 ? 0.0 : -0.0;
      if (common % 61 == 0 && static_cast<int>(common / 61 % static_cast<std::uint64_t>(d.ranks)) == rank)
        n.part[0] = std::numeric_limits<double>::quiet_NaN();
      break;
    }
    default: {
      const bool truth = logical_truth(d.op, d.ranks, h);
      const double value = d.ranks == 1 ? 1 : 1 + static_cast<double>(h / 256 % 3);
      n.part[is_complex(d.type) && d.ranks > 1 && (h & 64) ? 1 : 0] = truth ? value : 0;
    }
  }
  return n;
}

double least(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

void combine_integer(const ReducedData& d, Number* a, const Number& b) {
  const std::size_t bytes = size_of(d.type);
  switch (d.op) {
    case ReduceOp::sum: case ReduceOp::avg: a->bits += b.bits; break;
    case ReduceOp::prod: a->bits *= b.bits; break;
    case ReduceOp::min: case ReduceOp::max: {
      const bool less = is_signed(d.type) ? sign_extend(b.bits, bytes) < sign_extend(a->bits, bytes) : b.bits < a->bits;
      if (less == (d.op == ReduceOp::min)) a->bits = b.bits;
      break;
    }
    case ReduceOp::bit_and: a->bits &= b.bits; break;
    case ReduceOp::bit_or: a->bits |= b.bits; break;
    case ReduceOp::bit_xor: a->bits ^= b.bits; break;
    case ReduceOp::logical_and: a->bits = a->bits != 0 && b.bits != 0; break;
    case ReduceOp::logical_or: a->bits = a->bits != 0 || b.bits != 0; break;
    default: a->bits = (a->bits != 0) != (b.bits != 0);
  }
  a->bits = truncate(a->bits, bytes);
}

void combine_float(const ReducedData& d, Number* a, const Number& b) {
  const bool ta = a->part[0] != 0 || a->part[1] != 0, tb = b.part[0] != 0 || b.part[1] != 0;
  switch (d.op) {
    case ReduceOp::sum: case ReduceOp::avg:
      for (int k = 0; k < 2; ++k) a->part[k] += b.part[k];
      return;
    case ReduceOp::prod: {
      const double re = a->part[0] * b.part[0] - a->part[1] * b.part[1];
      a->part[1] = a->part[0] * b.part[1] + a->part[1] * b.part[0];
      a->part[0] = re;
      return;
    }
    case ReduceOp::min: a->part[0] = least(a->part[0], b.part[0]); return;
    case ReduceOp::max: a->part[0] = -least(-a->part[0], -b.part[0]); return;
    default: break;
  }
  a->part[1] = 0;
  a->part[0] = d.op == ReduceOp::logical_and ? ta && tb : d.op == ReduceOp::logical_or ? ta || tb : ta != tb;
}

void finish(const ReducedData& d, Number* n) {
  if (d.op != ReduceOp::avg) return;
  const std::size_t bytes = size_of(d.type);
  for (double& part : n->part) part /= d.ranks;
  n->bits = is_signed(d.type) ? static_cast<std::uint64_t>(sign_extend(n->bits, bytes) / d.ranks)
                              : n->bits / static_cast<std::uint64_t>(d.ranks);
}

void store(const Number& n, DataType type, std::byte* to) {
  const std::size_t bytes = size_of(type);
  if (is_complex(type)) {
    for (int k = 0; k < 2; ++k) {
      const std::uint64_t bits = encode(n.part[k], type);
      std::memcpy(to + k * static_cast<int>(bytes / 2), &bits, bytes / 2);
    }
    return;
  }
  const std::uint64_t bits = is_float(type) ? encode(n.part[0], type) : n.bits;
  std::memcpy(to, &bits, bytes);
}

std::string show(const std::byte* data, DataType type) {
  const std::size_t bytes = size_of(type);
  std::uint64_t bits = 0;
  std::memcpy(&bits, data, std::min<std::size_t>(bytes, 8));
  if (is_complex(type)) {
    std::uint64_t im = 0;
    bits = 0;
    std::memcpy(&bits, data, bytes / 2);
    std::memcpy(&im, data + bytes / 2, bytes / 2);
    return fmt::format("({}, {})", decode(bits, type), decode(im, type));
  }
  if (is_float(type)) return fmt::format("{} (0x{:x})", decode(bits, type), bits);
  return is_signed(type) ? std::to_string(sign_extend(bits, bytes)) : std::to_string(bits);
}

/// Equal as numbers: NaN like NaN, and -0 like +0 where `zeros` says so.
bool same_number(const std::byte* a, const std::byte* b, DataType type, bool zeros) {
  const std::size_t parts = is_complex(type) ? 2 : 1, bytes = size_of(type) / parts;
  for (std::size_t k = 0; k < parts; ++k) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, a + k * bytes, bytes);
    std::memcpy(&y, b + k * bytes, bytes);
    const double u = decode(x, type), v = decode(y, type);
    if (x != y && !(std::isnan(u) && std::isnan(v)) && !(zeros && u == 0 && v == 0)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::byte> contribution(const ReducedData& data, int rank) {
  std::vector<std::byte> table(kPeriod * size_of(data.type));
  for (std::size_t i = 0; i < kPeriod; ++i) store(contribute(data, rank, i), data.type, &table[i * size_of(data.type)]);
  return table;
}

std::vector<std::byte> reduced(const ReducedData& data) {
  std::vector<std::byte> table(kPeriod * size_of(data.type));
  const bool integer = !is_float(data.type) && !is_complex(data.type);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    Number sum = contribute(data, 0, i);
    for (int rank = 1; rank < data.ranks; ++rank) {
      const Number next = contribute(data, rank, i);
      if (integer)
        combine_integer(data, &sum, next);
      else
        combine_float(data, &sum, next);
    }
    finish(data, &sum);
    store(sum, data.type, &table[i * size_of(data.type)]);
  }
  return table;
}

std::vector<std::byte> moved(DataType type, int source, int block) {
  std::vector<std::byte> table(kPeriod * size_of(type));
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(source) + 1, static_cast<std::uint64_t>(block));
  for (std::size_t i = 0; i < table.size(); i += 8) {
    const std::uint64_t bits = mix(seed, i);
    std::memcpy(&table[i], &bits, std::min<std::size_t>(8, table.size() - i));
  }
  return table;
}

void fill_from(const std::vector<std::byte>& table, std::size_t start, std::size_t element_bytes, std::size_t count,
               std::byte* to) {
  std::size_t at = start % kPeriod;
  while (count > 0) {
    const std::size_t part = std::min(count, kPeriod - at);
    std::memcpy(to, &table[at * element_bytes], part * element_bytes);
    to += part * element_bytes;
    count -= part;
    at = 0;
  }
}

void compare_with(const std::vector<std::byte>& table, std::size_t start, DataType type, ReduceOp op, bool reduces,
                  std::size_t count, const std::byte* data, std::size_t at, Wrong* wrong) {
  const std::size_t bytes = size_of(type);
  const bool numeric = reduces && (is_float(type) || is_complex(type));
  const bool zeros = op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::avg;
  std::size_t in = start % kPeriod;
  while (count > 0) {
    const std::size_t part = std::min(count, kPeriod - in);
    if (std::memcmp(data, &table[in * bytes], part * bytes) != 0) {
      for (std::size_t i = 0; i < part; ++i) {
        const std::byte *is = data + i * bytes, *want = &table[(in + i) * bytes];
        if (std::memcmp(is, want, bytes) == 0 || (numeric && same_number(is, want, type, zeros))) continue;
        if (wrong->count++ == 0)
          wrong->first = fmt::format("element {} is {}, not {}", at + i, show(is, type), show(want, type));
      }
    }
    data += part * bytes;
    at += part;
    count -= part;
    in = 0;
  }
}

}  // namespace tamaki::tools
