// Kernels of f16, bf16 and the two fp8 types, which compute in f32 and round once.

#include "execute/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "execute/kernels/small_floats.cpp"
#include "hwy/foreach_target.h"

#include "execute/kernels/fold-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

template <class Codec>
void add_small_float(KernelTable& table, DataType type) {
  table.set(ReduceOp::sum, type, &kernel<Codec, Sum>);
  table.set(ReduceOp::avg, type, &kernel<Codec, ScaledSum<float>>);
  table.set(ReduceOp::pre_mul_sum, type, &kernel<Codec, ScaledSum<float>>);
  table.set(ReduceOp::prod, type, &kernel<Codec, Prod>);
  table.set(ReduceOp::min, type, &kernel<Codec, Min>);
  table.set(ReduceOp::max, type, &kernel<Codec, Max>);
  for (ReduceOp op : {ReduceOp::logical_and, ReduceOp::logical_or, ReduceOp::logical_xor}) {
    table.set(op, type, &kernel<Codec, Logical>);
  }
}

void add_small_floats(KernelTable& table) {
  add_small_float<Float16>(table, DataType::float16);
  add_small_float<Bfloat16>(table, DataType::bfloat16);
  add_small_float<E4m3>(table, DataType::float8e4m3);
  add_small_float<E5m2>(table, DataType::float8e5m2);
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tamaki {
void add_small_float_kernels(KernelTarget target, KernelTable& table) {
  TAMAKI_FOR_TARGET(target, add_small_floats(table))
}
}  // namespace tamaki
#endif
