#pragma once
// The MPI library of this process. The preload is linked to no MPI: everything is looked up when it is
// first needed, so that it can be loaded into any program, MPI or not, and into programs that load their
// MPI later (Python).
//
// Two kinds of look-up:
// - `next_*`: the next library in line that defines MPI_X, so that tools preloaded behind this one still
// see the calls;
// - `P...`: the PMPI_ name, for this library's own questions, which no tool should count.

#include <cstddef>

#include "mpi_header.hpp"

namespace tamaki::mpi {

// clang-format off
#define TAMAKI_PMPI_FUNCTIONS(X)                                                                              \
  X(Initialized) X(Finalized) X(Query_thread) X(Get_library_version)                                          \
  X(Comm_create_keyval) X(Comm_set_attr) X(Comm_get_attr) X(Comm_size) X(Comm_rank) X(Comm_test_inter)        \
  X(Comm_group) X(Comm_get_name) X(Comm_call_errhandler) X(Group_size) X(Group_translate_ranks) X(Group_free) \
  X(Add_error_class) X(Add_error_code) X(Add_error_string)                                                    \
  X(Type_size) X(Type_get_extent) X(Type_create_hindexed) X(Type_commit) X(Type_free) X(Pack) X(Unpack)       \
  X(Reduce_local) X(Allgather) X(Iprobe)
#ifdef OPEN_MPI
#define TAMAKI_PMPI_CONVERSIONS(X) X(Comm_f2c) X(Type_f2c) X(Op_f2c)
#else
#define TAMAKI_PMPI_CONVERSIONS(X)
#endif
// clang-format on

struct Library {
#define TAMAKI_POINTER(name) decltype(&::MPI_##name) P##name = nullptr;
  TAMAKI_PMPI_FUNCTIONS(TAMAKI_POINTER)
  TAMAKI_PMPI_CONVERSIONS(TAMAKI_POINTER)
#undef TAMAKI_POINTER
  bool usable = false;   // every pointer above was found, in an MPI of the kind this copy was built for
  bool foreign = false;  // an MPI is there, but of the other kind
};

/// The library, looked up at first use. Until an MPI is loaded the look-up is repeated at each call.
const Library& library();

/// The definition of function or variable `name` behind this library in the order of loading, or in an MPI
/// library that was loaded out of the global scope. Null where there is none.
void* find_next(const char* name);
/// The same with the whole process in order: the copy of a variable that everybody uses.
void* find_global(const char* name);

/// One function that is passed on; looked up once. `Signature` is a function type.
template <class Signature>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}
  /// Null where no library defines it.
  Signature* get() {
    if (function_ == nullptr) [[unlikely]]
      function_ = reinterpret_cast<Signature*>(find_next(name_));
    return function_;  // threads may look up at the same time: they find and store the same word
  }

 private:
  const char* name_;
  Signature* function_ = nullptr;
};

}  // namespace tamaki::mpi
