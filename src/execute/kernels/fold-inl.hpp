// The walk over memory that every reduction shares, per target (included once per target, hence the toggled
// guard).
//
// One pass whatever the number of sources: a few vectors of accumulators go through all sources, then to
// all destinations, so nothing is read twice and small floats are rounded once. No element is computed by
// other instructions than its neighbours: the ends that do not fill a vector are whole vectors which
// overlap the others. They are computed before the first store, because a destination may be a source.

#if defined(TAMAKI_FOLD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TAMAKI_FOLD_INL
#undef TAMAKI_FOLD_INL
#else
#define TAMAKI_FOLD_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "execute/kernels/codec-inl.hpp"
#include "execute/kernels/ops-inl.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

/// `Codec` and `Op` applied to bytes [0, bytes) of `sources`, `Op` seeing kLanes lanes as one element.
template <class Codec, class Op, int kLanes>
struct Fold {
  using Lane = typename Codec::Lane;
  static constexpr std::size_t kElement = Codec::kBytes * kLanes;

  const std::byte* const* sources;
  int source_count;
  std::byte* const* destinations;
  std::size_t destination_count;
  State<Lane> state;

  template <class D>
  HWY_INLINE hn::Vec<D> source(D d, int k, std::size_t at) const {
    const typename Codec::template Memory<D> memory;
    return Op::raw(d, Codec::decode(d, load_bytes(memory, sources[k] + at)), state, k);
  }

  template <class D>
  HWY_INLINE auto one(D d, std::size_t at) const {
    auto sum = source(d, 0, at);
    for (int k = 1; k < source_count; ++k) sum = Op::combine(d, sum, source(d, k, at), state);
    return Codec::encode(d, Op::end(d, sum, state));
  }

  template <class D>
  HWY_INLINE void store(D d, hn::Vec<typename Codec::template Memory<D>> v, std::size_t at) const {
    (void)d;
    const typename Codec::template Memory<D> memory;
    for (std::size_t i = 0; i < destination_count; ++i) store_bytes(v, memory, destinations[i] + at);
  }

  template <class D>
  HWY_INLINE void partial(D d, std::size_t at, std::size_t bytes) const {
    const typename Codec::template Memory<D> memory;
    auto sum = Op::raw(d, Codec::decode(d, load_partial(memory, sources[0] + at, bytes)), state, 0);
    for (int k = 1; k < source_count; ++k) {
      const auto next =
          Op::raw(d, Codec::decode(d, load_partial(memory, sources[k] + at, bytes)), state, k);
      sum = Op::combine(d, sum, next, state);
    }
    const auto result = Codec::encode(d, Op::end(d, sum, state));
    for (std::size_t i = 0; i < destination_count; ++i)
      store_partial(result, memory, destinations[i] + at, bytes);
  }

  /// Less than a whole vector: by vectors of 16 bytes, with little set-up, for this is the path of latency.
  HWY_INLINE void few(std::size_t bytes) const {
    const hn::CappedTag<Lane, 16 / sizeof(Lane)> d;
    const std::size_t step = hn::Lanes(d) * Codec::kBytes;
    if (bytes < step) return partial(d, 0, bytes);
    const auto tail = one(d, bytes - step);
    for (std::size_t at = 0; at + step < bytes; at += step) store(d, one(d, at), at);
    store(d, tail, bytes - step);
  }

  template <class D>
  HWY_INLINE void four(D d, std::size_t at, std::size_t step, bool stream) const {
    const typename Codec::template Memory<D> memory;
    auto a = source(d, 0, at);
    auto b = source(d, 0, at + step);
    auto c = source(d, 0, at + 2 * step);
    auto e = source(d, 0, at + 3 * step);
    for (int k = 1; k < source_count; ++k) {
      a = Op::combine(d, a, source(d, k, at), state);
      b = Op::combine(d, b, source(d, k, at + step), state);
      c = Op::combine(d, c, source(d, k, at + 2 * step), state);
      e = Op::combine(d, e, source(d, k, at + 3 * step), state);
    }
    const auto w = Codec::encode(d, Op::end(d, a, state));
    const auto x = Codec::encode(d, Op::end(d, b, state));
    const auto y = Codec::encode(d, Op::end(d, c, state));
    const auto z = Codec::encode(d, Op::end(d, e, state));
    for (std::size_t i = 0; i < destination_count; ++i) {
      std::byte* const p = destinations[i] + at;
      if (HWY_UNLIKELY(stream)) {
        using T = hn::TFromD<typename Codec::template Memory<D>>;
        hn::Stream(w, memory, reinterpret_cast<T*>(p));
        hn::Stream(x, memory, reinterpret_cast<T*>(p + step));
        hn::Stream(y, memory, reinterpret_cast<T*>(p + 2 * step));
        hn::Stream(z, memory, reinterpret_cast<T*>(p + 3 * step));
      } else {
        store_bytes(w, memory, p);
        store_bytes(x, memory, p + step);
        store_bytes(y, memory, p + 2 * step);
        store_bytes(z, memory, p + 3 * step);
      }
    }
  }

  /// At least one whole vector.
  HWY_INLINE void many(std::size_t bytes, bool want_stream) const {
    const hn::ScalableTag<Lane> d;
    const std::size_t step = hn::Lanes(d) * Codec::kBytes;
    const auto tail = one(d, bytes - step);
    auto head = tail;
    std::size_t at = 0;
    bool stream = false;
    if (bytes >= 16 * step) {
      // To the first destination's next boundary, where elements can reach it.
      const std::size_t boundary = step & (~step + 1);  // largest power of two in the vector's size
      const std::size_t skip = (~reinterpret_cast<std::uintptr_t>(destinations[0]) + 1) & (boundary - 1);
      if (skip != 0 && skip % kElement == 0) {
        head = one(d, 0);
        at = skip;
      }
      stream = want_stream && kCanStream;
      for (std::size_t i = 0; i < destination_count; ++i) {
        stream = stream && reinterpret_cast<std::uintptr_t>(destinations[i] + at) % step == 0;
      }
    }
    const bool peeled = at != 0;
    // The last vector, whole or not, is the tail's.
    for (; at + 4 * step < bytes; at += 4 * step) four(d, at, step, stream);
    for (; at + step < bytes; at += step) store(d, one(d, at), at);
    store(d, tail, bytes - step);
    if (peeled) store(d, head, 0);
    if (stream) hwy::FlushStream();  // so that whoever learns of the result by a later flag sees it
  }

  /// Stores around the caches exist for 16 bytes and more.
  static constexpr bool kCanStream =
      HWY_TARGET != HWY_SCALAR && HWY_MAX_BYTES / sizeof(Lane) * Codec::kBytes >= 16;
};

/// A ReduceKernel. kLanes: 2 for complex numbers whose parts are computed each by itself.
template <class Codec, class Op, int kLanes = 1>
void kernel(const OpContext& context, const KernelArguments& arguments) {
  const std::size_t bytes = arguments.count * (Codec::kBytes * kLanes);
  if (HWY_UNLIKELY(bytes == 0)) return;
  const bool scaled = std::is_base_of_v<Scaled, Op>;
  if (arguments.sources.size() == 1 &&
      (!scaled || move_is_copy(context.op, arguments.finish, arguments.raw_source >= 0))) {
    return copy_kernel(arguments.sources[0], arguments.destinations, bytes, arguments.stream);
  }
  Fold<Codec, Op, kLanes> fold{arguments.sources.data(),
                               static_cast<int>(arguments.sources.size()),
                               arguments.destinations.data(),
                               arguments.destinations.size(),
                               {context.op, -1, 0, {}}};
  if constexpr (scaled) {
    if (context.op == ReduceOp::avg) {
      fold.state.divisor = arguments.finish ? context.ranks : 0;
    } else if (arguments.raw_source >= 0) {
      fold.state.raw_source = arguments.raw_source;
      const hn::CappedTag<typename Codec::Lane, 16 / sizeof(typename Codec::Lane)> d;
      const typename Codec::template Memory<decltype(d)> memory;
      fold.state.scalar = hn::GetLane(Codec::decode(d, load_bytes(memory, context.scalar)));
    }
  }
  const hn::ScalableTag<typename Codec::Lane> d;
  if (HWY_LIKELY(bytes < hn::Lanes(d) * Codec::kBytes)) {
    fold.few(bytes);
  } else {
    fold.many(bytes, arguments.stream);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#endif  // TAMAKI_FOLD_INL
