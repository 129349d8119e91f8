// Products and logic of complex numbers, in plain C++: rare enough to do without vectors. Their sums are in
// floats.cpp.

#include <bit>
#include <cstring>
#include <type_traits>

#include "execute/kernels/targets.hpp"

namespace tamaki {
namespace {

template <class T>
struct Complex {
  T real;
  T imaginary;
};

template <class T>
Complex<T> read(const std::byte* p) {
  Complex<T> value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

/// The textbook formula, each product rounded (no fused multiplication: bits must not depend on the
/// processor).
template <class T>
Complex<T> multiply(Complex<T> a, Complex<T> b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

template <class T>
T canonical(T value) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kQuiet =
      sizeof(T) == 4 ? static_cast<Bits>(0x7FC00000u) : static_cast<Bits>(0x7FF8000000000000u);
  return value == value ? value : std::bit_cast<T>(kQuiet);
}

template <class T>
void write_all(const KernelArguments& arguments, std::size_t i, Complex<T> value) {
  value = {canonical(value.real), canonical(value.imaginary)};
  for (std::byte* p : arguments.destinations) std::memcpy(p + i * sizeof(value), &value, sizeof(value));
}

template <class T>
bool copied(const OpContext& context, const KernelArguments& arguments) {
  const bool raw = arguments.raw_source >= 0;
  if (arguments.sources.size() != 1 || !move_is_copy(context.op, arguments.finish, raw)) return false;
  copy_kernel(arguments.sources[0], arguments.destinations, arguments.count * 2 * sizeof(T),
              arguments.stream);
  return true;
}

template <class T>
void product(const OpContext& context, const KernelArguments& arguments) {
  if (copied<T>(context, arguments)) return;
  for (std::size_t i = 0; i < arguments.count; ++i) {
    const std::size_t at = i * 2 * sizeof(T);
    Complex<T> value = read<T>(arguments.sources[0] + at);
    for (const std::byte* p : arguments.sources.subspan(1)) value = multiply(value, read<T>(p + at));
    write_all(arguments, i, value);
  }
}

template <class T>
void scaled_sum(const OpContext& context, const KernelArguments& arguments) {
  if (copied<T>(context, arguments)) return;
  const Complex<T> scalar = read<T>(context.scalar);
  const int sources = static_cast<int>(arguments.sources.size());
  for (std::size_t i = 0; i < arguments.count; ++i) {
    Complex<T> sum{};
    for (int k = 0; k < sources; ++k) {
      Complex<T> value = read<T>(arguments.sources[k] + i * sizeof(sum));
      if (k == arguments.raw_source) value = multiply(value, scalar);
      sum = k == 0 ? value : Complex<T>{sum.real + value.real, sum.imaginary + value.imaginary};
    }
    write_all(arguments, i, sum);
  }
}

template <class T>
void logical(const OpContext& context, const KernelArguments& arguments) {
  if (copied<T>(context, arguments)) return;
  for (std::size_t i = 0; i < arguments.count; ++i) {
    bool all = true, any = false, odd = false;
    for (const std::byte* p : arguments.sources) {
      const Complex<T> value = read<T>(p + i * sizeof(value));
      const bool truth = value.real != 0 || value.imaginary != 0;
      all = all && truth;
      any = any || truth;
      odd = odd != truth;
    }
    const bool result = context.op == ReduceOp::logical_and  ? all
                        : context.op == ReduceOp::logical_or ? any
                                                             : odd;
    write_all(arguments, i, Complex<T>{static_cast<T>(result), 0});
  }
}

template <class T>
void add(KernelTable& table, DataType type) {
  table.set(ReduceOp::prod, type, &product<T>);
  table.set(ReduceOp::pre_mul_sum, type, &scaled_sum<T>);
  for (ReduceOp op : {ReduceOp::logical_and, ReduceOp::logical_or, ReduceOp::logical_xor}) {
    table.set(op, type, &logical<T>);
  }
}

}  // namespace

void add_complex_kernels(KernelTable& table) {
  add<float>(table, DataType::complex64);
  add<double>(table, DataType::complex128);
}

}  // namespace tamaki
