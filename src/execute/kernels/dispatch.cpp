// Chooses the instruction set of this machine, once, and holds the tables of kernels.

#include <array>
#include <atomic>
#include <cstdint>

#include "execute/kernels/targets.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tamaki {
namespace {

#if defined(__x86_64__) || defined(__i386__)
/// Everything that the compiler may use in code for `target` (HWY_TARGET_STR_*), not just the name-giving
/// extension.
/// __builtin_cpu_supports also asks whether the system saves the registers.
bool runs(KernelTarget target) {
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool leaf1 = __get_cpuid(1, &a, &b, &c, &d) != 0;
  constexpr unsigned kPclmul = 1u << 1, kAes = 1u << 25, kF16c = 1u << 29;
  const bool sse4 = leaf1 && (c & kPclmul) != 0 && (c & kAes) != 0 && __builtin_cpu_supports("ssse3") &&
                    __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2");
  const bool avx2 = sse4 && (c & kF16c) != 0 && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  switch (target) {
    case KernelTarget::scalar:
      return true;
    case KernelTarget::sse4:
      return sse4;
    case KernelTarget::avx2:
      return avx2;
    case KernelTarget::avx3:
      return avx3;
    default:
      return false;
  }
}
#elif defined(__aarch64__) && defined(__linux__)
bool runs(KernelTarget target) {
  const unsigned long have = getauxval(AT_HWCAP);
  constexpr unsigned long kAes = 1ul << 3, kSve = 1ul << 22;
  switch (target) {
    case KernelTarget::scalar:
      return true;
    case KernelTarget::neon:
      return (have & kAes) != 0;  // Highway's NEON lets the compiler use AES
    case KernelTarget::sve:
      return (have & kSve) != 0;
    default:
      return false;
  }
}
#else
bool runs(KernelTarget target) { return target == KernelTarget::scalar || target == KernelTarget::neon; }
#endif

constexpr bool compiled(KernelTarget target) {
  switch (target) {
    case KernelTarget::scalar:
      return (HWY_TARGETS & HWY_SCALAR) != 0;
    case KernelTarget::sse4:
      return (HWY_TARGETS & HWY_SSE4) != 0;
    case KernelTarget::avx2:
      return (HWY_TARGETS & HWY_AVX2) != 0;
    case KernelTarget::avx3:
      return (HWY_TARGETS & HWY_AVX3) != 0;
    case KernelTarget::neon:
      return (HWY_TARGETS & HWY_NEON) != 0;
    case KernelTarget::sve:
      return (HWY_TARGETS & HWY_SVE) != 0;
  }
  return false;
}

struct Dispatch {
  std::array<KernelTarget, kKernelTargets> targets{};
  std::size_t target_count = 0;
  std::array<KernelTable, kKernelTargets> tables{};  // by target

  Dispatch() {
    for (int i = 0; i < kKernelTargets; ++i) {
      const auto target = static_cast<KernelTarget>(i);
      // The static target runs by definition: everything else of this program is compiled for it.
      const bool baseline = (HWY_STATIC_TARGET & bit_of(target)) != 0;
      if (!compiled(target) || !(baseline || runs(target))) continue;
      targets[target_count++] = target;
      KernelTable& table = tables[i];
      add_float_kernels(target, table);
      add_small_float_kernels(target, table);
      add_wide_integer_kernels(target, table);
      add_narrow_integer_kernels(target, table);
      add_copy_kernel(target, table);
      add_complex_kernels(table);
      add_user_kernels(table);
    }
  }

  static constexpr std::int64_t bit_of(KernelTarget target) {
    constexpr std::int64_t kBits[kKernelTargets] = {HWY_SCALAR, HWY_SSE4, HWY_AVX2,
                                                    HWY_AVX3,   HWY_NEON, HWY_SVE};
    return kBits[static_cast<int>(target)];
  }
  KernelTarget best() const { return targets[target_count - 1]; }
};

const Dispatch& dispatch() {
  static const Dispatch instance;
  return instance;
}

void choose_copy(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
                 bool stream);

/// Constant-initialised, so that copies work before and after other statics live. Relaxed: either value is
/// right.
std::atomic<CopyKernel> chosen_copy{&choose_copy};

void choose_copy(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
                 bool stream) {
  const CopyKernel copy = kernels_of(dispatch().best()).copy;
  chosen_copy.store(copy, std::memory_order_relaxed);
  copy(source, destinations, bytes, stream);
}

}  // namespace

std::span<const KernelTarget> kernel_targets() {
  return {dispatch().targets.data(), dispatch().target_count};
}

const char* name_of(KernelTarget target) {
  constexpr const char* kNames[kKernelTargets] = {"SCALAR", "SSE4", "AVX2", "AVX3", "NEON", "SVE"};
  return kNames[static_cast<int>(target)];
}

const KernelTable& kernels_of(KernelTarget target) { return dispatch().tables[static_cast<int>(target)]; }

ReduceKernel reduce_kernel(ReduceOp op, DataType type) {
  return kernels_of(dispatch().best()).reduce[static_cast<int>(op)][static_cast<int>(type)];
}

void copy_kernel(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
                 bool stream) {
  chosen_copy.load(std::memory_order_relaxed)(source, destinations, bytes, stream);
}

const char* kernel_target() { return name_of(dispatch().best()); }

}  // namespace tamaki
