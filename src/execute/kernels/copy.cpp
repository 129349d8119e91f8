// The copy kernel: plain vector loads and stores, several destinations in one pass. memcpy of the C library turns to
// `rep movsb` from some size on, whose speed depends on the processor and on where the lines are (they may lie
// modified in another core's cache, as a peer's message does). perf_tests/kernels_bench compares the two.

#include "execute/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "execute/kernels/copy.cpp"
#include "hwy/foreach_target.h"

#include "execute/kernels/codec-inl.hpp"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

using CopyDestinations = std::span<std::byte* const>;

/// Less than a whole vector. As in the reductions, the end is loaded before the first store.
HWY_INLINE void copy_few(const std::byte* source, CopyDestinations destinations, std::size_t bytes) {
  const hn::CappedTag<std::uint8_t, 16> d;
  const std::size_t step = hn::Lanes(d);
  if (bytes < step) {
    const auto v = load_partial(d, source, bytes);
    for (std::byte* p : destinations) store_partial(v, d, p, bytes);
    return;
  }
  const auto tail = load_bytes(d, source + bytes - step);
  for (std::size_t at = 0; at + step < bytes; at += step) {
    const auto v = load_bytes(d, source + at);
    for (std::byte* p : destinations) store_bytes(v, d, p + at);
  }
  for (std::byte* p : destinations) store_bytes(tail, d, p + bytes - step);
}

HWY_INLINE void copy_many(const std::byte* source, CopyDestinations destinations, std::size_t bytes,
                          bool want_stream) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t step = hn::Lanes(d);
  const auto head = load_bytes(d, source);
  const auto tail = load_bytes(d, source + bytes - step);
  std::size_t at = 0;
  bool stream = false;
  if (bytes >= 16 * step) {
    const std::size_t boundary = step & (~step + 1);
    at = (~reinterpret_cast<std::uintptr_t>(destinations[0]) + 1) & (boundary - 1);
    stream = want_stream && HWY_TARGET != HWY_SCALAR;
    for (std::byte* p : destinations)
      stream = stream && reinterpret_cast<std::uintptr_t>(p + at) % step == 0;
  }
  const bool peeled = at != 0;
  for (; at + 4 * step < bytes; at += 4 * step) {
    const auto w = load_bytes(d, source + at);
    const auto x = load_bytes(d, source + at + step);
    const auto y = load_bytes(d, source + at + 2 * step);
    const auto z = load_bytes(d, source + at + 3 * step);
    for (std::byte* to : destinations) {
      std::byte* const p = to + at;
      if (HWY_UNLIKELY(stream)) {
        hn::Stream(w, d, reinterpret_cast<std::uint8_t*>(p));
        hn::Stream(x, d, reinterpret_cast<std::uint8_t*>(p + step));
        hn::Stream(y, d, reinterpret_cast<std::uint8_t*>(p + 2 * step));
        hn::Stream(z, d, reinterpret_cast<std::uint8_t*>(p + 3 * step));
      } else {
        store_bytes(w, d, p);
        store_bytes(x, d, p + step);
        store_bytes(y, d, p + 2 * step);
        store_bytes(z, d, p + 3 * step);
      }
    }
  }
  for (; at + step < bytes; at += step) {
    const auto v = load_bytes(d, source + at);
    for (std::byte* p : destinations) store_bytes(v, d, p + at);
  }
  for (std::byte* p : destinations) store_bytes(tail, d, p + bytes - step);
  if (peeled) {
    for (std::byte* p : destinations) store_bytes(head, d, p);
  }
  if (stream) hwy::FlushStream();
}

void copy_to_all(const std::byte* source, CopyDestinations destinations, std::size_t bytes, bool stream) {
  if (bytes == 0) return;
  if (bytes < hn::Lanes(hn::ScalableTag<std::uint8_t>())) {
    copy_few(source, destinations, bytes);
  } else {
    copy_many(source, destinations, bytes, stream);
  }
}

void add_copy(KernelTable& table) {
#if HWY_TARGET == HWY_SCALAR
  // One byte at a time would not do.
  table.copy = [](const std::byte* source, CopyDestinations destinations, std::size_t bytes, bool) {
    for (std::byte* p : destinations) std::memmove(p, source, bytes);
  };
#else
  table.copy = &copy_to_all;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tamaki {
void add_copy_kernel(KernelTarget target, KernelTable& table) { TAMAKI_FOR_TARGET(target, add_copy(table)) }
}  // namespace tamaki
#endif
