// Kernels of one size of integers, per target (included once per target, hence the toggled guard).

#if defined(TAMAKI_INTEGERS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TAMAKI_INTEGERS_INL
#undef TAMAKI_INTEGERS_INL
#else
#define TAMAKI_INTEGERS_INL
#endif

#include <type_traits>

#include "execute/kernels/fold-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

/// Arithmetic that wraps is the same for both signs, so only division and order are compiled twice.
template <class Signed>
void add_integers(KernelTable& table, DataType signed_type, DataType unsigned_type) {
  using Unsigned = std::make_unsigned_t<Signed>;
  using Codec = Native<Unsigned>;
  for (DataType type : {signed_type, unsigned_type}) {
    table.set(ReduceOp::sum, type, &kernel<Codec, Sum>);
    table.set(ReduceOp::prod, type, &kernel<Codec, Prod>);
    table.set(ReduceOp::pre_mul_sum, type, &kernel<Codec, ScaledSum<Unsigned>>);
    for (ReduceOp op : {ReduceOp::logical_and, ReduceOp::logical_or, ReduceOp::logical_xor}) {
      table.set(op, type, &kernel<Codec, Logical>);
    }
  }
  table.set(ReduceOp::avg, signed_type, &kernel<Codec, ScaledSum<Signed>>);
  table.set(ReduceOp::avg, unsigned_type, &kernel<Codec, ScaledSum<Unsigned>>);
  table.set(ReduceOp::min, signed_type, &kernel<Native<Signed>, Min>);
  table.set(ReduceOp::min, unsigned_type, &kernel<Codec, Min>);
  table.set(ReduceOp::max, signed_type, &kernel<Native<Signed>, Max>);
  table.set(ReduceOp::max, unsigned_type, &kernel<Codec, Max>);
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#endif  // TAMAKI_INTEGERS_INL
