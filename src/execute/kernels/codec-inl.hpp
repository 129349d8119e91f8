// How elements lie in memory and in vectors, per target (included once per target, hence the toggled
// guard).
//
// A codec says: Lane (what a vector lane computes with), kBytes (of an element's lane in memory), decode
// (memory vector to compute vector) and encode (back, rounding once to nearest even, every NaN becoming the
// type's canonical quiet NaN). Results depend on the value alone: not on the target, the lane or the
// neighbours.

#if defined(TAMAKI_CODEC_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TAMAKI_CODEC_INL
#undef TAMAKI_CODEC_INL
#else
#define TAMAKI_CODEC_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Reads a whole vector at any alignment.
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* p) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, p, sizeof(value));
  return hn::Set(d, value);
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(p)));
#endif
}

template <class D>
HWY_INLINE void store_bytes(hn::Vec<D> v, D, std::byte* p) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(p, &value, sizeof(value));
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<std::uint8_t*>(p));
#endif
}

template <class T>
HWY_INLINE T read_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

template <class T>
HWY_INLINE void write_as(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(value));
}

/// The first `bytes` (1..8) at p as the low bytes of a word; the rest of the word is zero. Reads nothing
/// else.
HWY_INLINE std::uint64_t read_word(const std::byte* p, std::size_t bytes) {
  if (bytes >= 8) return read_as<std::uint64_t>(p);
  if (bytes >= 4) {
    const std::uint64_t high = read_as<std::uint32_t>(p + bytes - 4);
    return read_as<std::uint32_t>(p) | (high << (8 * (bytes - 4)));
  }
  if (bytes >= 2) {
    const std::uint64_t high = read_as<std::uint16_t>(p + bytes - 2);
    return read_as<std::uint16_t>(p) | (high << (8 * (bytes - 2)));
  }
  return read_as<std::uint8_t>(p);
}

HWY_INLINE void write_word(std::byte* p, std::uint64_t word, std::size_t bytes) {
  if (bytes >= 8) return write_as(p, word);
  if (bytes >= 4) {
    write_as(p, static_cast<std::uint32_t>(word));
    return write_as(p + bytes - 4, static_cast<std::uint32_t>(word >> (8 * (bytes - 4))));
  }
  if (bytes >= 2) {
    write_as(p, static_cast<std::uint16_t>(word));
    return write_as(p + bytes - 2, static_cast<std::uint16_t>(word >> (8 * (bytes - 2))));
  }
  write_as(p, static_cast<std::uint8_t>(word));
}

/// Vectors of at most 16 bytes in memory, for the ends that a whole vector does not fit into: `bytes` of
/// them, more than none and fewer than all; the rest of the vector is zero. By words and registers where
/// that is cheap, since a round trip through a buffer stalls on store forwarding.
template <class D>
HWY_INLINE hn::Vec<D> load_partial(D d, const std::byte* p, std::size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  (void)bytes;  // a vector is one lane, and no element is divided
  return load_bytes(d, p);
#elif HWY_ARCH_X86
  constexpr std::size_t kVector = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if constexpr (kVector == 16) {
    const hn::Repartition<std::uint64_t, D> words;
    if (bytes <= 8)
      return hn::BitCast(d,
                         hn::InterleaveLower(words, hn::Set(words, read_word(p, bytes)), hn::Zero(words)));
    const std::uint64_t high = read_as<std::uint64_t>(p + bytes - 8) >> (8 * (16 - bytes));
    return hn::BitCast(
        d, hn::InterleaveLower(words, hn::Set(words, read_as<std::uint64_t>(p)), hn::Set(words, high)));
  } else if constexpr (kVector == 8) {
    const hn::Repartition<std::uint64_t, D> words;
    return hn::BitCast(d, hn::Set(words, read_word(p, bytes)));
  } else {
    const hn::Repartition<std::uint32_t, D> words;
    return hn::BitCast(d, hn::Set(words, static_cast<std::uint32_t>(read_word(p, bytes))));
  }
#else
  alignas(16) std::byte buffer[16] = {};
  std::memcpy(buffer, p, bytes);
  return load_bytes(d, buffer);
#endif
}

template <class D>
HWY_INLINE void store_partial(hn::Vec<D> v, D d, std::byte* p, std::size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  (void)bytes;
  store_bytes(v, d, p);
#elif HWY_ARCH_X86
  constexpr std::size_t kVector = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if constexpr (kVector == 16) {
    const hn::Repartition<std::uint64_t, D> words;
    const std::uint64_t low = hn::GetLane(hn::BitCast(words, v));
    if (bytes <= 8) return write_word(p, low, bytes);
    const std::uint64_t high = hn::ExtractLane(hn::BitCast(words, v), 1);
    write_as(p, low);
    write_as(p + bytes - 8, (low >> (8 * (bytes - 8))) | (high << (8 * (16 - bytes))));
  } else if constexpr (kVector == 8) {
    const hn::Repartition<std::uint64_t, D> words;
    write_word(p, hn::GetLane(hn::BitCast(words, v)), bytes);
  } else {
    const hn::Repartition<std::uint32_t, D> words;
    write_word(p, hn::GetLane(hn::BitCast(words, v)), bytes);
  }
  (void)d;
#else
  alignas(16) std::byte buffer[16];
  store_bytes(v, d, buffer);
  std::memcpy(p, buffer, bytes);
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> v) {
  using Bits = hn::TFromD<hn::RebindToUnsigned<D>>;
  constexpr Bits kQuiet =
      sizeof(Bits) == 4 ? static_cast<Bits>(0x7FC00000u) : static_cast<Bits>(0x7FF8000000000000u);
  return hn::IfThenElse(hn::Eq(v, v), v, hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kQuiet)));
}

/// Integers, f32 and f64: computed as they are.
template <class T>
struct Native {
  using Lane = T;
  static constexpr std::size_t kBytes = sizeof(T);
  template <class D>
  using Memory = D;
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D, hn::Vec<D> v) {
    return v;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> encode(D d, hn::Vec<D> v) {
    if constexpr (std::is_floating_point_v<T>) {
      return canonical_nan(d, v);
    } else {
      (void)d;
      return v;
    }
  }
};

/// A float of 1 sign, E exponent and M mantissa bits with the IEEE bias, in the low bits of 32-bit lanes,
/// to and from f32. kFinite: no infinities; the largest pattern is the only NaN, and too large values
/// saturate (OCP E4M3).
template <int E, int M, bool kFinite>
struct SmallFormat {
  static constexpr int kShift = 23 - M;
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr std::int32_t kMagnitude = (1 << (E + M)) - 1;
  static constexpr std::int32_t kRebias = (127 - kBias) << 23;

  template <class D>
  static HWY_INLINE hn::Vec<D> to_float(D d, hn::Vec<hn::RebindToSigned<D>> h) {
    const hn::RebindToSigned<D> di;
    const auto sign = hn::ShiftLeft<31 - (E + M)>(hn::AndNot(hn::Set(di, kMagnitude), h));
    const auto magnitude = hn::ShiftLeft<kShift>(hn::And(h, hn::Set(di, kMagnitude)));
    const auto normal = hn::Add(magnitude, hn::Set(di, kRebias));
    // Without the hidden one: read with it, then take it away. Exact, and no f32 denormal is touched, so
    // the bits do not depend on a program's flush-to-zero mode.
    const auto hidden = hn::Set(di, kRebias + (1 << 23));
    const auto subnormal =
        hn::BitCast(di, hn::Sub(hn::BitCast(d, hn::Add(magnitude, hidden)), hn::BitCast(d, hidden)));
    auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << 23)), subnormal, normal);
    if constexpr (kFinite) {
      bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, kMagnitude << kShift)), hn::Set(di, 0x7FC00000),
                            bits);
    } else {
      const auto special = hn::Set(di, ((1 << E) - 1) << 23);
      bits = hn::IfThenElse(hn::Lt(magnitude, special), bits, hn::Or(magnitude, hn::Set(di, 0x7F800000)));
    }
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToSigned<D>> from_float(D d, hn::Vec<D> v) {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, v);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto sign =
        hn::ShiftRight<31 - (E + M)>(hn::BitCast(hn::RebindToUnsigned<D>(), hn::Xor(bits, magnitude)));
    // Normal: add half of the last place, less one where that place is even, then cut.
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, (1 << (kShift - 1)) - 1 - kRebias)), odd);
    const auto normal = hn::ShiftRight<kShift>(rounded);
    // Subnormal: the addition of a number whose last place is the format's smallest step rounds as it
    // should.
    constexpr std::int32_t kMagic = (127 - kBias + kShift + 1) << 23;
    const auto magic = hn::Set(di, kMagic);
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic))), magic);
    auto small = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kRebias + (1 << 23))), subnormal, normal);
    // The smallest value beyond the largest finite one (which has kMagnitude - 1 here, infinity's pattern -
    // 1 there).
    constexpr std::int32_t kTop = kFinite ? kMagnitude - 1 : (((1 << E) - 1) << M) - 1;
    constexpr std::int32_t kLimit = kFinite ? kTop : kTop + 1;
    small = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, ((kTop + 1) << kShift) + kRebias)), small,
                           hn::Set(di, kLimit));
    small = hn::Min(small, hn::Set(di, kLimit));
    constexpr std::int32_t kNan = kFinite ? kMagnitude : (((1 << E) - 1) << M) | (1 << (M - 1));
    small = hn::Or(small, hn::BitCast(di, sign));
    return hn::IfThenElse(hn::Lt(hn::Set(di, 0x7F800000), magnitude), hn::Set(di, kNan), small);
  }
};

/// Floats of 16 and 8 bits compute in f32. Format: SmallFormat; T: unsigned integer of their size.
template <class T, class Format>
struct Small {
  using Lane = float;
  static constexpr std::size_t kBytes = sizeof(T);
  template <class D>
  using Memory = hn::Rebind<T, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<Memory<D>> v) {
    const hn::RebindToUnsigned<D> du;
    return Format::to_float(d, hn::BitCast(hn::RebindToSigned<D>(), hn::PromoteTo(du, v)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Memory<D>> encode(D d, hn::Vec<D> v) {
    return hn::DemoteTo(Memory<D>(), Format::from_float(d, v));
  }
};
using E4m3 = Small<std::uint8_t, SmallFormat<4, 3, true>>;
using E5m2 = Small<std::uint8_t, SmallFormat<5, 2, false>>;

struct Bfloat16 {
  using Lane = float;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  using Memory = hn::Rebind<std::uint16_t, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<Memory<D>> v) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, v)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Memory<D>> encode(D d, hn::Vec<D> v) {
    // Not the instruction of AVX512_BF16: that one flushes denormals.
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, canonical_nan(d, v));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd));
    return hn::DemoteTo(Memory<D>(), hn::BitCast(hn::RebindToSigned<D>(), rounded));
  }
};

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4
using Float16 = Small<std::uint16_t, SmallFormat<5, 10, false>>;
#else
/// By the conversion instructions of the processor (F16C, FCVT): exact one way, nearest even the other.
struct Float16 {
  using Lane = float;
  static constexpr std::size_t kBytes = 2;
  template <class D>
  using Memory = hn::Rebind<std::uint16_t, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<Memory<D>> v) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), v));
  }
  template <class D>
  static HWY_INLINE hn::Vec<Memory<D>> encode(D d, hn::Vec<D> v) {
    return hn::BitCast(Memory<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), canonical_nan(d, v)));
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#endif  // TAMAKI_CODEC_INL
