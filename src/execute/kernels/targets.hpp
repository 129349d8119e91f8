#pragma once
// The instruction sets that the kernels are compiled for, and the tables they fill. Each *.cpp of this
// folder that computes is compiled once per instruction set by hwy/foreach_target.h, into a namespace of
// its own (N_AVX2, ...). Highway is used as headers only, so its own dispatch (which lives in libhwy.so) is
// not.
//
// Include this before any header of Highway: it decides which targets there are.

#define TAMAKI_UNUSED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TAMAKI_FEW_TARGETS
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAMAKI_FEW_TARGETS
#endif
#ifdef TAMAKI_FEW_TARGETS
// Instrumented vectors compile many times slower; the source is the same for every target, so one of them will do.
#define HWY_DISABLED_TARGETS (TAMAKI_UNUSED_TARGETS | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS TAMAKI_UNUSED_TARGETS
#endif
// Highway's debug assertions call hwy::Abort, which is in libhwy.so (and ends the process).
#define HWY_IS_DEBUG_BUILD 0

#include <cstddef>
#include <cstdint>
#include <span>

#include "execute/kernels.hpp"
#include "hwy/detect_targets.h"

namespace tamaki {

/// In order of preference within an architecture: a later one is better.
enum class KernelTarget : std::uint8_t { scalar, sse4, avx2, avx3, neon, sve };
inline constexpr int kKernelTargets = 6;

using CopyKernel = void (*)(const std::byte* source, std::span<std::byte* const> destinations,
                            std::size_t bytes, bool stream);

inline constexpr int kKernelOps = kPredefinedOps + 2;  // and pre_mul_sum, user

/// All kernels of one target; null where is_defined() says no.
struct KernelTable {
  ReduceKernel reduce[kKernelOps][kDataTypes] = {};
  CopyKernel copy = nullptr;

  void set(ReduceOp op, DataType type, ReduceKernel kernel) {
    reduce[static_cast<int>(op)][static_cast<int>(type)] = kernel;
  }
};

/// Targets that are compiled in and that this machine can run, the best last. Never empty. For tests, which
/// compare the bits of all of them; everybody else gets the best one from reduce_kernel() and
/// copy_kernel().
std::span<const KernelTarget> kernel_targets();
const char* name_of(KernelTarget target);
/// Kernels of a target out of kernel_targets().
const KernelTable& kernels_of(KernelTarget target);

// Each of these fills its family's part of `table` for `target`.
void add_float_kernels(KernelTarget target, KernelTable& table);         // f32, f64; sums of complex
void add_small_float_kernels(KernelTarget target, KernelTable& table);   // f16, bf16, fp8
void add_wide_integer_kernels(KernelTarget target, KernelTable& table);  // 32 and 64 bits
void add_narrow_integer_kernels(KernelTarget target,
                                KernelTable& table);  // 8 and 16 bits; bitwise of every type
void add_copy_kernel(KernelTarget target, KernelTable& table);
void add_complex_kernels(KernelTable& table);  // products, pre_mul_sum and logic of complex: plain C++
void add_user_kernels(KernelTable& table);

}  // namespace tamaki

// TAMAKI_FOR_TARGET(target, call): calls N_<TARGET>::call, of the namespace that foreach_target.h made.
#if HWY_TARGETS & HWY_SCALAR
#define TAMAKI_CASE_SCALAR(call) \
  case KernelTarget::scalar:     \
    N_SCALAR::call;              \
    break;
#else
#define TAMAKI_CASE_SCALAR(call)
#endif
#if HWY_TARGETS & HWY_SSE4
#define TAMAKI_CASE_SSE4(call) \
  case KernelTarget::sse4:     \
    N_SSE4::call;              \
    break;
#else
#define TAMAKI_CASE_SSE4(call)
#endif
#if HWY_TARGETS & HWY_AVX2
#define TAMAKI_CASE_AVX2(call) \
  case KernelTarget::avx2:     \
    N_AVX2::call;              \
    break;
#else
#define TAMAKI_CASE_AVX2(call)
#endif
#if HWY_TARGETS & HWY_AVX3
#define TAMAKI_CASE_AVX3(call) \
  case KernelTarget::avx3:     \
    N_AVX3::call;              \
    break;
#else
#define TAMAKI_CASE_AVX3(call)
#endif
#if HWY_TARGETS & HWY_NEON
#define TAMAKI_CASE_NEON(call) \
  case KernelTarget::neon:     \
    N_NEON::call;              \
    break;
#else
#define TAMAKI_CASE_NEON(call)
#endif
#if HWY_TARGETS & HWY_SVE
#define TAMAKI_CASE_SVE(call) \
  case KernelTarget::sve:     \
    N_SVE::call;              \
    break;
#else
#define TAMAKI_CASE_SVE(call)
#endif
#define TAMAKI_FOR_TARGET(target, call)                                                         \
  switch (target) {                                                                             \
    TAMAKI_CASE_SCALAR(call)                                                                    \
    TAMAKI_CASE_SSE4(call) TAMAKI_CASE_AVX2(call) TAMAKI_CASE_AVX3(call) TAMAKI_CASE_NEON(call) \
        TAMAKI_CASE_SVE(call) default : break;                                                  \
  }
