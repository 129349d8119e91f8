// The kernels against an element-by-element oracle, on every instruction set that this machine can run: so
// all of them give the same bits.

#include "execute/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "execute/kernels/targets.hpp"
#include "support/element.hpp"

namespace tamaki {
namespace {

using test::fold;

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};
constexpr std::size_t kCounts[] = {0,  1,  2,  3,  5,  7,  8,   15,  16,  17,
                                   31, 32, 33, 63, 64, 65, 127, 130, 260, 1000};

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int t = 0; t < kDataTypes; ++t) types.push_back(static_cast<DataType>(t));
  return types;
}

/// `bytes` at any offset, with guards on both sides that must stay as they are.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t offset)
      : bytes_(bytes), memory_(bytes + 3 * kGuard + 64, kGuardByte) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = kGuard + (64 - address % 64) % 64 + offset;
  }
  std::byte* data() { return memory_.data() + begin_; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  bool intact() const {
    const auto guard = [](std::byte b) { return b == kGuardByte; };
    const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(memory_.begin(), first, guard) &&
           std::all_of(first + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), guard);
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> memory_;
  std::size_t begin_ = 0;
};

/// Any bit patterns at all, or (mostly) numbers small enough that sums of them mean something.
void fill_mixed(DataType type, std::mt19937_64& random, std::span<std::byte> out) {
  const DataType part = type == DataType::complex64    ? DataType::float32
                        : type == DataType::complex128 ? DataType::float64
                                                       : type;
  for (std::size_t at = 0; at < out.size(); at += size_of(part)) {
    const std::uint64_t r = random();
    if (!is_float(part) || r % 4 == 0) {
      std::uint64_t bits = random();
      if (r % 16 == 0) bits = 0;
      std::memcpy(out.data() + at, &bits, size_of(part));
    } else {
      test::write_float(part, (static_cast<double>(r >> 40) / (1 << 20) - 8) * ((r & 16) != 0 ? 1 : 0.01),
                        out.data() + at);
    }
  }
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  char digits[3];
  for (std::size_t i = bytes.size(); i-- > 0;) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(bytes[i]));
    text += digits;
  }
  return text;
}

void expect_same(std::span<const std::byte> expected, std::span<const std::byte> actual, std::size_t size,
                 const std::string& where) {
  if (std::equal(expected.begin(), expected.end(), actual.begin(), actual.end())) return;
  for (std::size_t at = 0; at < expected.size(); at += size) {
    if (std::memcmp(expected.data() + at, actual.data() + at, size) == 0) continue;
    FAIL() << where << ": element " << at / size << " is 0x" << hex(actual.subspan(at, size))
           << ", expected 0x" << hex(expected.subspan(at, size));
  }
}

struct Case {
  OpContext context;
  std::size_t count = 0;
  std::size_t sources = 1;
  bool finish = false;
  int raw = -1;
};

std::string describe(const Case& c, KernelTarget target) {
  return std::string(name_of(target)) + " " + std::string(name_of(c.context.type)) + " " +
         std::string(name_of(c.context.op)) + " count " + std::to_string(c.count) + " sources " +
         std::to_string(c.sources) + (c.finish ? " finish" : "") + " raw " + std::to_string(c.raw);
}

/// All targets, 1 to 3 destinations, random offsets; and one destination that is a source.
void check(const Case& c, std::mt19937_64& random) {
  const std::size_t size = size_of(c.context.type);
  const std::size_t bytes = c.count * size;
  std::vector<Guarded> inputs;
  std::vector<const std::byte*> sources;
  for (std::size_t k = 0; k < c.sources; ++k) {
    // Mostly natural alignment, which takes the other paths.
    inputs.emplace_back(bytes, random() % 3 == 0 ? random() % 64 : random() % 64 / size * size);
    fill_mixed(c.context.type, random, inputs.back().span());
  }
  for (Guarded& input : inputs) sources.push_back(input.data());
  const std::vector<std::byte> expected = fold(c.context, sources, c.count, c.finish, c.raw);
  for (KernelTarget target : kernel_targets()) {
    const ReduceKernel kernel =
        kernels_of(target).reduce[static_cast<int>(c.context.op)][static_cast<int>(c.context.type)];
    ASSERT_NE(kernel, nullptr) << describe(c, target);
    const std::size_t n = 1 + random() % 3;
    std::vector<Guarded> outputs;
    std::vector<std::byte*> destinations;
    for (std::size_t d = 0; d < n; ++d) {
      outputs.emplace_back(bytes, random() % 3 == 0 ? random() % 64 : random() % 64 / size * size);
    }
    for (Guarded& output : outputs) destinations.push_back(output.data());
    kernel(c.context, {sources, destinations, c.count, c.finish, c.raw, random() % 2 == 0});
    for (Guarded& output : outputs) {
      expect_same(expected, output.span(), size, describe(c, target));
      ASSERT_TRUE(output.intact()) << describe(c, target);
      if (testing::Test::HasFatalFailure()) return;
    }
    // In place: the destination starts as a copy of a source and stands for it; another destination
    // follows.
    const std::size_t own = random() % c.sources;
    std::copy(inputs[own].span().begin(), inputs[own].span().end(), outputs[0].span().begin());
    std::vector<const std::byte*> with_own = sources;
    with_own[own] = destinations[0];
    kernel(c.context, {with_own, destinations, c.count, c.finish, c.raw, false});
    for (Guarded& output : outputs) {
      expect_same(expected, output.span(), size,
                  describe(c, target) + " in place of " + std::to_string(own));
      ASSERT_TRUE(output.intact()) << describe(c, target);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  for (const Guarded& input : inputs) ASSERT_TRUE(input.intact());
}

class KernelsOfType : public testing::TestWithParam<DataType> {};

TEST_P(KernelsOfType, MatchOracle) {
  const DataType type = GetParam();
  std::mt19937_64 random(20240601 + static_cast<unsigned>(type));
  for (int o = 0; o < kKernelOps; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    if (op == ReduceOp::user || !is_defined(op, type)) continue;
    for (std::size_t count : kCounts) {
      for (std::size_t sources = 1; sources <= 9; ++sources) {
        if (count == 1000 && sources % 3 != 0) continue;
        Case c;
        c.context.op = op;
        c.context.type = type;
        c.context.ranks = random() % 4 == 0 ? 300 : 1 + static_cast<int>(random() % 9);
        fill_mixed(type, random, std::span(c.context.scalar).first(size_of(type)));
        c.count = count;
        c.sources = sources;
        c.finish = random() % 2 == 0;
        if (op == ReduceOp::pre_mul_sum) c.raw = static_cast<int>(random() % (sources + 1)) - 1;
        check(c, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelsOfType, testing::ValuesIn(all_types()),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(Kernels, ManySourcesAndManyElements) {
  std::mt19937_64 random(7);
  for (DataType type :
       {DataType::float32, DataType::float16, DataType::float8e4m3, DataType::int8, DataType::int64}) {
    for (const auto& [count, sources] :
         {std::pair<std::size_t, std::size_t>{100, 64}, {70001, 2}, {20011, 17}}) {
      Case c;
      c.context.type = type;
      c.count = count;
      c.sources = sources;
      check(c, random);
      if (HasFatalFailure()) return;
    }
  }
}

/// Every pair of 8-bit patterns, and every 16-bit pattern with partners of all kinds.
TEST(Kernels, EveryPatternOfSmallFloats) {
  for (DataType type :
       {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2}) {
    const std::size_t size = size_of(type);
    const std::size_t patterns = size == 1 ? 256 : 65536;
    std::vector<unsigned> partners;
    if (size == 1) {
      for (unsigned b = 0; b < 256; ++b) partners.push_back(b);
    } else if (type == DataType::float16) {
      partners = {0x0000, 0x8000, 0x3C00, 0xBC01, 0x0001, 0x83FF, 0x0400,
                  0x7BFF, 0xFC00, 0x7E01, 0x1234, 0x4321, 0x2E66};
    } else {
      partners = {0x0000, 0x8000, 0x3F80, 0xBF81, 0x0001, 0x807F, 0x0080,
                  0x7F7F, 0xFF80, 0x7FC1, 0x1234, 0x4321, 0x3DCD};
    }
    std::vector<std::byte> a(patterns * size), b(patterns * size);
    for (unsigned i = 0; i < patterns; ++i) std::memcpy(a.data() + i * size, &i, size);
    for (unsigned partner : partners) {
      for (unsigned i = 0; i < patterns; ++i) std::memcpy(b.data() + i * size, &partner, size);
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
        OpContext context;
        context.op = op;
        context.type = type;
        const std::byte* sources[] = {a.data(), b.data()};
        const std::vector<std::byte> expected = fold(context, sources, patterns);
        for (KernelTarget target : kernel_targets()) {
          std::vector<std::byte> out(patterns * size);
          std::byte* destinations[] = {out.data()};
          kernels_of(target).reduce[static_cast<int>(op)][static_cast<int>(type)](
              context, {sources, destinations, patterns});
          expect_same(expected, out, size,
                      std::string(name_of(target)) + " " + std::string(name_of(type)) + " " +
                          std::string(name_of(op)) + " with partner " + std::to_string(partner));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// A sum of three whose first two make a tie: rounded once, the third decides; rounded in between, it would
/// not.
TEST(Kernels, SmallFloatsRoundOnceToNearestEven) {
  OpContext context;
  context.type = DataType::float16;
  const std::uint16_t one = 0x3C00, half_step = 0x1000, tiny = 0x0001;
  std::uint16_t result = 0;
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&one),
                                reinterpret_cast<const std::byte*>(&half_step),
                                reinterpret_cast<const std::byte*>(&tiny)};
  std::byte* destinations[] = {reinterpret_cast<std::byte*>(&result)};
  for (KernelTarget target : kernel_targets()) {
    const ReduceKernel sum =
        kernels_of(target).reduce[static_cast<int>(ReduceOp::sum)][static_cast<int>(DataType::float16)];
    const KernelArguments three{sources, destinations, 1};
    sum(context, three);
    // 2^-24 is below the last place of f32 at 1 (2^-23) and a tie there: 1 + 2^-11 is even, so it stays a
    // tie of f16.
    EXPECT_EQ(result, 0x3C00) << name_of(target);
    const std::uint16_t small = 0x0002;  // 2^-23: seen by f32
    const std::byte* seen[] = {sources[0], sources[1], reinterpret_cast<const std::byte*>(&small)};
    sum(context, {seen, destinations, 1});
    EXPECT_EQ(result, 0x3C01) << name_of(target);
  }
}

template <class T>
std::vector<std::byte> bytes_of(std::vector<T> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// What the documentation promises, in plain numbers rather than by an oracle.
TEST(Kernels, SpecialValuesOfF32) {
  const float inf = std::numeric_limits<float>::infinity();
  const float quiet = std::bit_cast<float>(0x7FC00000u), payload = std::bit_cast<float>(0xFFC12345u),
              signalling = std::bit_cast<float>(0x7F812345u);
  struct Row {
    ReduceOp op;
    float a, b, expected;
  };
  const Row rows[] = {
      {ReduceOp::min, 0.0f, -0.0f, -0.0f},
      {ReduceOp::min, -0.0f, 0.0f, -0.0f},
      {ReduceOp::max, 0.0f, -0.0f, 0.0f},
      {ReduceOp::max, -0.0f, 0.0f, 0.0f},
      {ReduceOp::min, -0.0f, -0.0f, -0.0f},
      {ReduceOp::min, 1, payload, quiet},
      {ReduceOp::min, payload, 1, quiet},
      {ReduceOp::max, -inf, signalling, quiet},
      {ReduceOp::max, signalling, inf, quiet},
      {ReduceOp::min, -inf, inf, -inf},
      {ReduceOp::sum, payload, signalling, quiet},
      {ReduceOp::sum, signalling, payload, quiet},
      {ReduceOp::sum, inf, -inf, quiet},
      {ReduceOp::sum, -0.0f, -0.0f, -0.0f},
      {ReduceOp::prod, 0.0f, inf, quiet},
      {ReduceOp::prod, payload, 0, quiet},
      {ReduceOp::logical_and, payload, -0.0f, 0.0f},
      {ReduceOp::logical_or, payload, 0, 1.0f},
      {ReduceOp::logical_xor, -2.0f, inf, 0.0f},
  };
  for (const Row& row : rows) {
    for (std::size_t count : {1u, 5u, 16u, 257u}) {
      const std::vector<std::byte> a = bytes_of(std::vector<float>(count, row.a)),
                                   b = bytes_of(std::vector<float>(count, row.b)),
                                   expected = bytes_of(std::vector<float>(count, row.expected));
      for (KernelTarget target : kernel_targets()) {
        OpContext context;
        context.op = row.op;
        std::vector<std::byte> out(a.size());
        const std::byte* sources[] = {a.data(), b.data()};
        std::byte* destinations[] = {out.data()};
        kernels_of(target).reduce[static_cast<int>(row.op)][static_cast<int>(DataType::float32)](
            context, {sources, destinations, count});
        expect_same(expected, out, 4,
                    std::string(name_of(target)) + " " + std::string(name_of(row.op)) + " of " +
                        std::to_string(row.a) + " and " + std::to_string(row.b));
      }
    }
  }
}

TEST(Kernels, IntegersWrapAndAveragesTruncate) {
  struct Row {
    ReduceOp op;
    std::int8_t a, b, expected;
    int ranks;
  };
  const Row rows[] = {{ReduceOp::sum, 127, 1, -128, 1},  {ReduceOp::sum, -128, -1, 127, 1},
                      {ReduceOp::prod, 100, 100, 16, 1}, {ReduceOp::avg, -4, -3, -3, 2},
                      {ReduceOp::avg, 4, 3, 3, 2},       {ReduceOp::avg, 100, 100, -28, 2},
                      {ReduceOp::avg, 90, 20, 0, 300}};
  for (const Row& row : rows) {
    for (std::size_t count : {1u, 3u, 16u, 17u, 64u, 100u, 1000u}) {
      const std::vector<std::byte> a = bytes_of(std::vector<std::int8_t>(count, row.a)),
                                   b = bytes_of(std::vector<std::int8_t>(count, row.b)),
                                   expected = bytes_of(std::vector<std::int8_t>(count, row.expected));
      for (KernelTarget target : kernel_targets()) {
        OpContext context;
        context.op = row.op;
        context.type = DataType::int8;
        context.ranks = row.ranks;
        std::vector<std::byte> out(count);
        const std::byte* sources[] = {a.data(), b.data()};
        std::byte* destinations[] = {out.data()};
        kernels_of(target).reduce[static_cast<int>(row.op)][static_cast<int>(DataType::int8)](
            context, {sources, destinations, count, true});
        expect_same(expected, out, 1, std::string(name_of(target)) + " " + std::string(name_of(row.op)));
      }
    }
  }
}

TEST(Kernels, Fp8e4m3SaturatesAndKeepsNan) {
  const std::uint8_t largest = 0x7E, nan = 0xFF, one = 0x38;
  const auto sum_of = [&](std::uint8_t a, std::uint8_t b) {
    std::uint8_t result = 0;
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&a),
                                  reinterpret_cast<const std::byte*>(&b)};
    std::byte* destinations[] = {reinterpret_cast<std::byte*>(&result)};
    OpContext context;
    context.type = DataType::float8e4m3;
    reduce_kernel(ReduceOp::sum, DataType::float8e4m3)(context, {sources, destinations, 1});
    return result;
  };
  EXPECT_EQ(sum_of(largest, largest), 0x7E);
  EXPECT_EQ(sum_of(largest | 0x80, largest | 0x80), 0xFE);
  EXPECT_EQ(sum_of(nan, one), 0x7F);
  EXPECT_EQ(sum_of(one, one), 0x40);
}

/// in * 3 + inout: neither commutative nor kind to swapped operands. The context counts calls and checks
/// alignment.
struct UserLog {
  std::size_t alignment = 1;
  int calls = 0;
  bool aligned = true;
};
template <class T>
void three_times_in_plus_inout(const void* in, void* inout, std::size_t count, int, void* context) {
  auto* log = static_cast<UserLog*>(context);
  ++log->calls;
  for (const void* p : {in, static_cast<const void*>(inout)}) {
    log->aligned = log->aligned && reinterpret_cast<std::uintptr_t>(p) % log->alignment == 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<const char*>(in) + i * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const char*>(inout) + i * sizeof(T), sizeof(T));
    b = static_cast<T>(a * 3 + b);
    std::memcpy(static_cast<char*>(inout) + i * sizeof(T), &b, sizeof(T));
  }
}

template <class T>
void check_user(DataType type) {
  std::mt19937_64 random(3);
  for (std::size_t count : {0u, 1u, 2u, 17u, 1000u, 5000u}) {
    for (std::size_t n = 1; n <= 5; ++n) {
      for (int own = -1; own < static_cast<int>(n); ++own) {
        UserLog log;
        log.alignment = alignof(T);
        OpContext context;
        context.op = ReduceOp::user;
        context.type = type;
        context.user = &three_times_in_plus_inout<T>;
        context.user_context = &log;
        context.commutative = false;
        const std::size_t bytes = count * sizeof(T);
        std::vector<Guarded> inputs, outputs;
        std::vector<T> expected(count);
        for (std::size_t k = 0; k < n; ++k) {
          inputs.emplace_back(bytes, random() % 64);
          fill_mixed(type, random, inputs.back().span());
          for (std::size_t i = 0; i < count; ++i) {
            T value;
            std::memcpy(&value, inputs[k].data() + i * sizeof(T), sizeof(T));
            expected[i] = k == 0 ? value : static_cast<T>(expected[i] * 3 + value);
          }
        }
        for (int d = 0; d < 2; ++d) outputs.emplace_back(bytes, random() % 64);
        std::vector<const std::byte*> sources;
        for (Guarded& input : inputs) sources.push_back(input.data());
        if (own >= 0) {
          std::copy(inputs[own].span().begin(), inputs[own].span().end(), outputs[0].span().begin());
          sources[own] = outputs[0].data();
        }
        std::byte* destinations[] = {outputs[0].data(), outputs[1].data()};
        reduce_kernel(ReduceOp::user, type)(context, {sources, destinations, count});
        for (Guarded& output : outputs) {
          expect_same(bytes_of(expected), output.span(), sizeof(T),
                      "count " + std::to_string(count) + " sources " + std::to_string(n) + " own " +
                          std::to_string(own));
          ASSERT_TRUE(output.intact());
        }
        EXPECT_TRUE(log.aligned);
        EXPECT_EQ(log.calls == 0, n == 1 || count == 0);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Kernels, UserFunctionsKeepOrderAndAlignment) {
  check_user<std::uint8_t>(DataType::uint8);
  check_user<std::uint32_t>(DataType::uint32);
  check_user<std::uint64_t>(DataType::uint64);
}

TEST(Kernels, ExistExactlyWhereTheOperationIsDefined) {
  for (int op = 0; op < kKernelOps; ++op) {
    for (DataType type : all_types()) {
      for (KernelTarget target : kernel_targets()) {
        EXPECT_EQ(kernels_of(target).reduce[op][static_cast<int>(type)] != nullptr,
                  is_defined(static_cast<ReduceOp>(op), type))
            << name_of(target) << " " << name_of(type) << " " << name_of(static_cast<ReduceOp>(op));
      }
    }
  }
  EXPECT_STREQ(kernel_target(), name_of(kernel_targets().back()));
  RecordProperty("target", kernel_target());
}

TEST(Copy, EverySizeAndOffset) {
  std::mt19937_64 random(11);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) sizes.push_back(bytes);
  for (std::size_t bytes : {1023u, 1024u, 1025u, 4096u, 65536u, 65537u, 300001u}) sizes.push_back(bytes);
  for (KernelTarget target : kernel_targets()) {
    for (std::size_t bytes : sizes) {
      for (std::size_t n = 1; n <= 3; ++n) {
        const bool stream = random() % 2 == 0;
        Guarded source(bytes, random() % 64);
        for (std::byte& b : source.span()) b = static_cast<std::byte>(random());
        std::vector<Guarded> outputs;
        std::vector<std::byte*> destinations;
        const std::size_t offset = random() % 64;
        for (std::size_t d = 0; d < n; ++d)
          outputs.emplace_back(bytes, random() % 2 == 0 ? offset : random() % 64);
        for (Guarded& output : outputs) destinations.push_back(output.data());
        kernels_of(target).copy(source.data(), destinations, bytes, stream);
        for (Guarded& output : outputs) {
          expect_same(source.span(), output.span(), 1,
                      std::string(name_of(target)) + " copy of " + std::to_string(bytes));
          ASSERT_TRUE(output.intact()) << name_of(target) << " " << bytes;
        }
        kernels_of(target).copy(destinations[0], destinations, bytes, stream);  // onto itself
        expect_same(source.span(), outputs[0].span(), 1, "copy onto itself");
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace tamaki
