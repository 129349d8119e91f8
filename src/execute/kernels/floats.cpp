// Kernels of f32 and f64, and those of complex numbers that treat the parts alike.

#include "execute/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "execute/kernels/floats.cpp"
#include "hwy/foreach_target.h"

#include "execute/kernels/fold-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

template <class T>
void add_float(KernelTable& table, DataType type, DataType complex) {
  using Codec = Native<T>;
  table.set(ReduceOp::sum, type, &kernel<Codec, Sum>);
  table.set(ReduceOp::avg, type, &kernel<Codec, ScaledSum<T>>);
  table.set(ReduceOp::pre_mul_sum, type, &kernel<Codec, ScaledSum<T>>);
  table.set(ReduceOp::prod, type, &kernel<Codec, Prod>);
  table.set(ReduceOp::min, type, &kernel<Codec, Min>);
  table.set(ReduceOp::max, type, &kernel<Codec, Max>);
  for (ReduceOp op : {ReduceOp::logical_and, ReduceOp::logical_or, ReduceOp::logical_xor}) {
    table.set(op, type, &kernel<Codec, Logical>);
  }
  table.set(ReduceOp::sum, complex, &kernel<Codec, Sum, 2>);
  table.set(ReduceOp::avg, complex, &kernel<Codec, ScaledSum<T>, 2>);
}

void add_floats(KernelTable& table) {
  add_float<float>(table, DataType::float32, DataType::complex64);
  add_float<double>(table, DataType::float64, DataType::complex128);
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tamaki {
void add_float_kernels(KernelTarget target, KernelTable& table) {
  TAMAKI_FOR_TARGET(target, add_floats(table))
}
}  // namespace tamaki
#endif
