#include "handles.hpp"

#include <array>
#include <cstring>

#include "library.hpp"

namespace tamaki::mpi {
namespace {

// Handles of predefined objects never change and are never freed: a table filled once needs no lock.
// Open addressing; filled to less than half.
template <class Value>
class HandleMap {
 public:
  void insert(Raw handle, const Value& value) {
    std::size_t i = slot(handle);
    while (used_[i] && keys_[i] != handle) i = (i + 1) % kSlots;
    if (used_[i]) return;  // an alias: the first name's meaning stays
    used_[i] = true;
    keys_[i] = handle;
    values_[i] = value;
  }
  const Value* find(Raw handle) const {
    for (std::size_t i = slot(handle); used_[i]; i = (i + 1) % kSlots)
      if (keys_[i] == handle) return &values_[i];
    return nullptr;
  }

 private:
  static constexpr std::size_t kSlots = 256;
  static std::size_t slot(Raw handle) {
    return (reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15u) >> 56;
  }
  std::array<Raw, kSlots> keys_{};
  std::array<bool, kSlots> used_{};
  std::array<Value, kSlots> values_{};
};

HandleMap<TypeInfo> g_types;
HandleMap<ReduceOp> g_ops;

enum class Sign { is_signed, is_unsigned };

TypeInfo describe(TypeGroup group, Sign sign, std::size_t size) {
  TypeInfo info{group, DataType::bytes, size};
  const bool is_signed = sign == Sign::is_signed;
  bool known = true;
  switch (group) {
    case TypeGroup::c_integer:
    case TypeGroup::fortran_integer:
    case TypeGroup::multi_language:
    case TypeGroup::logical:
      switch (size) {
        case 1:
          info.type = is_signed ? DataType::int8 : DataType::uint8;
          break;
        case 2:
          info.type = is_signed ? DataType::int16 : DataType::uint16;
          break;
        case 4:
          info.type = is_signed ? DataType::int32 : DataType::uint32;
          break;
        case 8:
          info.type = is_signed ? DataType::int64 : DataType::uint64;
          break;
        default:
          known = false;
      }
      break;
    case TypeGroup::floating:
      known = size == 4 || size == 8;
      info.type = size == 4 ? DataType::float32 : DataType::float64;
      break;
    case TypeGroup::complex:
      known = size == 8 || size == 16;
      info.type = size == 8 ? DataType::complex64 : DataType::complex128;
      break;
    case TypeGroup::byte:
      info.type = DataType::uint8;
      break;
    case TypeGroup::movable:
      break;
  }
  if (!known) info = {TypeGroup::movable, DataType::bytes, size};
  return info;
}

// Compilers disagree on the bits of .TRUE.; ours gives 1. The MPI library says what its own means.
bool logical_is_zero_or_one(MPI_Datatype type, std::size_t size, MPI_Op op, bool (*expected)(bool, bool)) {
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 2; ++b) {
      alignas(16) unsigned char in[16] = {}, inout[16] = {}, wanted[16] = {};
      in[0] = static_cast<unsigned char>(
          a);  // little-endian; elsewhere the probe fails and logicals pass through
      inout[0] = static_cast<unsigned char>(b);
      wanted[0] = expected(a != 0, b != 0) ? 1 : 0;
      if (library().PReduce_local(in, inout, 1, type, op) != MPI_SUCCESS) return false;
      if (std::memcmp(inout, wanted, size) != 0) return false;
    }
  return true;
}

void add_type(MPI_Datatype type, TypeGroup group, Sign sign, MPI_Datatype null_type) {
  if (type == null_type || to_raw(type) == nullptr)
    return;  // a type this build of the library does not have
  int size = 0;
  MPI_Aint lower = 0, extent = 0;
  if (library().PType_size(type, &size) != MPI_SUCCESS || size <= 0) return;
  if (library().PType_get_extent(type, &lower, &extent) != MPI_SUCCESS || lower != 0 || extent != size)
    return;
  g_types.insert(to_raw(type), describe(group, sign, static_cast<std::size_t>(size)));
}

void add_logical(MPI_Datatype type, MPI_Datatype null_type) {
  if (type == null_type || to_raw(type) == nullptr) return;
  int size = 0;
  if (library().PType_size(type, &size) != MPI_SUCCESS || size <= 0 || size > 8) return;
  const auto land = TAMAKI_HANDLE(MPI_Op, MPI_LAND, "op_land");
  const auto lor = TAMAKI_HANDLE(MPI_Op, MPI_LOR, "op_lor");
  const auto lxor = TAMAKI_HANDLE(MPI_Op, MPI_LXOR, "op_lxor");
  const auto bytes = static_cast<std::size_t>(size);
  const bool plain = logical_is_zero_or_one(type, bytes, land, [](bool a, bool b) { return a && b; }) &&
                     logical_is_zero_or_one(type, bytes, lor, [](bool a, bool b) { return a || b; }) &&
                     logical_is_zero_or_one(type, bytes, lxor, [](bool a, bool b) { return a != b; });
  add_type(type, plain ? TypeGroup::logical : TypeGroup::movable, Sign::is_unsigned, null_type);
}

}  // namespace

void build_handle_tables() {
  const auto null_type = TAMAKI_HANDLE(MPI_Datatype, MPI_DATATYPE_NULL, "datatype_null");
#define TAMAKI_TYPE(name, symbol, group, sign) \
  add_type(TAMAKI_HANDLE(MPI_Datatype, name, symbol), TypeGroup::group, Sign::sign, null_type);
#define TAMAKI_LOGICAL(name, symbol) add_logical(TAMAKI_HANDLE(MPI_Datatype, name, symbol), null_type);
#define TAMAKI_OP(name, symbol, op) g_ops.insert(to_raw(TAMAKI_HANDLE(MPI_Op, name, symbol)), ReduceOp::op);
#include "predefined.def"
#undef TAMAKI_TYPE
#undef TAMAKI_LOGICAL
#undef TAMAKI_OP
}

const TypeInfo* find_type(Raw type) { return g_types.find(canonical(type)); }
const ReduceOp* find_op(Raw op) { return g_ops.find(canonical(op)); }

bool is_supported(ReduceOp op, const TypeInfo& type) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
      return type.group <= TypeGroup::complex;
    case ReduceOp::min:
    case ReduceOp::max:
      return type.group <= TypeGroup::floating;
    case ReduceOp::logical_and:
    case ReduceOp::logical_or:
    case ReduceOp::logical_xor:
      return type.group == TypeGroup::c_integer || type.group == TypeGroup::logical;
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return type.group <= TypeGroup::multi_language || type.group == TypeGroup::byte;
    default:
      return false;
  }
}

}  // namespace tamaki::mpi
