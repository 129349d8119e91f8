#pragma once
// The predefined data types and operations of MPI in Tamaki's words.

#include "base/types.hpp"
#include "mpi_header.hpp"

namespace tamaki::mpi {

/// The groups of types for which MPI 4.0, section 6.9.2, defines operations.
enum class TypeGroup : std::uint8_t {
  c_integer,
  fortran_integer,
  multi_language,
  floating,
  complex,
  logical,
  byte,
  movable,  // may be moved only: characters, long double, pairs, ...
};

struct TypeInfo {
  TypeGroup group = TypeGroup::movable;
  DataType type = DataType::bytes;  // meaningful unless movable
  std::size_t size = 0;             // bytes of an element
};

/// Builds the tables. Once, with the library usable.
void build_handle_tables();
/// Null for types that are not predefined, have gaps (MPI_DOUBLE_INT), or are unknown to this copy.
const TypeInfo* find_type(Raw type);
/// The operation, or null for user-defined ones, MINLOC, MAXLOC, REPLACE, NO_OP.
const ReduceOp* find_op(Raw op);
/// Whether MPI defines `op` on the group and Tamaki computes it on the type.
bool is_supported(ReduceOp op, const TypeInfo& type);

}  // namespace tamaki::mpi
