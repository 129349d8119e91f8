// Kernels of integers of 8 and 16 bits, and the bitwise ones, which see bytes whatever the type.

#include "execute/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "execute/kernels/narrow_integers.cpp"
#include "hwy/foreach_target.h"

#include "execute/kernels/integers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tamaki {
namespace HWY_NAMESPACE {

/// `kSize` bytes are one element.
template <std::size_t kSize>
void bitwise(const OpContext& context, const KernelArguments& arguments) {
  KernelArguments bytes = arguments;
  bytes.count *= kSize;
  kernel<Native<std::uint8_t>, Bitwise>(context, bytes);
}

void add_narrow_integers(KernelTable& table) {
  add_integers<std::int8_t>(table, DataType::int8, DataType::uint8);
  add_integers<std::int16_t>(table, DataType::int16, DataType::uint16);
  for (ReduceOp op : {ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor}) {
    for (DataType type : {DataType::int8, DataType::uint8, DataType::bytes})
      table.set(op, type, &bitwise<1>);
    for (DataType type : {DataType::int16, DataType::uint16}) table.set(op, type, &bitwise<2>);
    for (DataType type : {DataType::int32, DataType::uint32}) table.set(op, type, &bitwise<4>);
    for (DataType type : {DataType::int64, DataType::uint64}) table.set(op, type, &bitwise<8>);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tamaki
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tamaki {
void add_narrow_integer_kernels(KernelTarget target, KernelTable& table) {
  TAMAKI_FOR_TARGET(target, add_narrow_integers(table))
}
}  // namespace tamaki
#endif
