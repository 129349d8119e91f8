// Kernels of integers of 32 and 64 bits.

#include "execute/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "execute/kernels/wide_integers.cpp"
#include "hwy/foreach_target.h"

#include "execute/kernels/integers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

void add_wide_integers(KernelTable& table) {
  add_integers<std::int32_t>(table, DataType::int32, DataType::uint32);
  add_integers<std::int64_t>(table, DataType::int64, DataType::uint64);
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tamaki {
void add_wide_integer_kernels(KernelTarget target, KernelTable& table) {
  TAMAKI_FOR_TARGET(target, add_wide_integers(table))
}
}  // namespace tamaki
#endif
