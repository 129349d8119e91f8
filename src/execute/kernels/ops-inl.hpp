// The operations on vectors, per target (included once per target, hence the toggled guard).
//
// An operation says: raw(d, v, state, k), what source k contributes; combine(d, a, b, state), a being the
// lower one; end(d, v, state), applied to the complete result. kLanes lanes make an element.

#if defined(TAMAKI_OPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TAMAKI_OPS_INL
#undef TAMAKI_OPS_INL
#else
#define TAMAKI_OPS_INL
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "execute/kernels/codec-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

/// What a call needs beyond its pointers. Scalars, not vectors: those have no size on some targets.
template <class Lane>
struct State {
  ReduceOp op;
  int raw_source;
  int divisor;  // 0: none
  Lane scalar;
};

template <class D>
HWY_INLINE hn::Vec<D> multiply(D d, hn::Vec<D> a, hn::Vec<D> b) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_floating_point_v<T>) {
    (void)d;
    return hn::Mul(a, b);
  } else {
    static_assert(std::is_unsigned_v<T>, "products of integers wrap, so they are taken unsigned");
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, static_cast<T>(std::uint64_t{hn::GetLane(a)} * std::uint64_t{hn::GetLane(b)}));
#else
    if constexpr (sizeof(T) == 1) {
      const hn::Repartition<std::uint16_t, D> d16;
      const auto a16 = hn::BitCast(d16, a);
      const auto b16 = hn::BitCast(d16, b);
      const auto low_byte = hn::Set(d16, 0x00FF);
      const auto even = hn::And(hn::Mul(a16, b16), low_byte);
      const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::AndNot(low_byte, b16));
      return hn::BitCast(d, hn::Or(even, odd));
    } else if constexpr (sizeof(T) == 8) {
      const hn::Repartition<std::uint32_t, D> d32;
      const auto a32 = hn::BitCast(d32, a);
      const auto b32 = hn::BitCast(d32, b);
      const auto a_high = hn::BitCast(d32, hn::ShiftRight<32>(a));
      const auto b_high = hn::BitCast(d32, hn::ShiftRight<32>(b));
      const auto cross = hn::Add(hn::MulEven(a_high, b32), hn::MulEven(a32, b_high));
      return hn::Add(hn::MulEven(a32, b32), hn::ShiftLeft<32>(cross));
    } else {
      return hn::Mul(a, b);
    }
#endif
  }
}

/// Division of each lane, truncating toward zero. Signed: how the lanes are to be read.
template <class Signed, class D>
HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> v, int divisor) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_floating_point_v<T>) {
    return hn::Div(v, hn::Set(d, static_cast<T>(divisor)));
  } else {
    using Wide =
        std::conditional_t<sizeof(T) == 8, Signed,
                           std::conditional_t<std::is_signed_v<Signed>, std::int32_t, std::uint32_t>>;
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    const std::size_t n = hn::Lanes(d);
    for (std::size_t i = 0; i < n; ++i) {
      lanes[i] =
          static_cast<T>(static_cast<Wide>(static_cast<Signed>(lanes[i])) / static_cast<Wide>(divisor));
    }
    return hn::Load(d, lanes);
  }
}

struct PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> raw(D, hn::Vec<D> v, const S&, int) {
    return v;
  }
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> end(D, hn::Vec<D> v, const S&) {
    return v;
  }
};

struct Sum : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b, const S&) {
    return hn::Add(a, b);
  }
};

/// Marks operations that transform even a single source.
struct Scaled {};

/// Sum with multiplication of raw input and a division at the end: pre_mul_sum and avg.
template <class Signed>
struct ScaledSum : Scaled {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> raw(D d, hn::Vec<D> v, const S& state, int k) {
    return k == state.raw_source ? multiply(d, v, hn::Set(d, state.scalar)) : v;
  }
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b, const S&) {
    return hn::Add(a, b);
  }
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> end(D d, hn::Vec<D> v, const S& state) {
    return state.divisor != 0 ? divide<Signed>(d, v, state.divisor) : v;
  }
};

struct Prod : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b, const S&) {
    return multiply(d, a, b);
  }
};

/// Of floats: a NaN stays (encode makes it canonical), and of two zeros the sign decides. Eq and Lt only:
/// Highway's Ne is false for NaN on some targets.
struct Min : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b, const S&) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const auto smaller = hn::IfThenElse(hn::Lt(a, b), a, b);             // b, if either is NaN
      const auto r = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), smaller);  // equal: the same bits, or zeros
      return hn::IfThenElse(hn::Eq(a, a), r, a);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b, const S&) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const auto larger = hn::IfThenElse(hn::Lt(b, a), a, b);
      const auto r = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger);
      return hn::IfThenElse(hn::Eq(a, a), r, a);
    } else {
      return hn::Max(a, b);
    }
  }
};

/// And, or and xor in one kernel: the branch costs less than two more kernels of each type would in compile
/// time.
struct Logical : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b, const S& state) {
    const auto zero = hn::Zero(d);
    const auto one = hn::Set(d, static_cast<hn::TFromD<D>>(1));
    const auto a_true = hn::IfThenZeroElse(hn::Eq(a, zero), one);  // so that a NaN is true
    const auto b_true = hn::IfThenZeroElse(hn::Eq(b, zero), one);
    if (state.op == ReduceOp::logical_and) return hn::And(a_true, b_true);
    if (state.op == ReduceOp::logical_or) return hn::Or(a_true, b_true);
    return hn::Xor(a_true, b_true);
  }
};

struct Bitwise : PlainOp {
  template <class D, class S>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b, const S& state) {
    if (state.op == ReduceOp::bit_and) return hn::And(a, b);
    if (state.op == ReduceOp::bit_or) return hn::Or(a, b);
    return hn::Xor(a, b);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#endif  // TAMAKI_OPS_INL
