#pragma once
// mpi.h of the MPI this copy of the preload is built for, without its C++ bindings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>

namespace tamaki::mpi {

/// A handle as the wrappers see it: Open MPI's are pointers, MPICH's are ints. Wrappers take the whole
/// register, so that a call passes on unharmed even where the copy for the other MPI has been preloaded by
/// mistake.
using Raw = void*;

#ifdef OPEN_MPI
inline constexpr bool kOpenMpi = true;
template <class Handle>
Handle from_raw(Raw raw) {
  return static_cast<Handle>(raw);
}
template <class Handle>
Raw to_raw(Handle handle) {
  return static_cast<Raw>(handle);
}
/// The register without what is undefined in it: raw handles are compared in this form.
inline Raw canonical(Raw raw) { return raw; }
#else
inline constexpr bool kOpenMpi = false;
template <class Handle>
Handle from_raw(Raw raw) {
  return static_cast<Handle>(reinterpret_cast<std::intptr_t>(raw));
}
template <class Handle>
Raw to_raw(Handle handle) {
  return reinterpret_cast<Raw>(static_cast<std::uintptr_t>(static_cast<std::uint32_t>(handle)));
}
inline Raw canonical(Raw raw) {
  return to_raw(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(raw)));
}
#endif

// What a predefined handle is: in MPICH a number of mpi.h, in Open MPI the address of a variable of the
// library, which is looked up (library.hpp) because this library is not linked to it.
#ifdef OPEN_MPI
#define TAMAKI_HANDLE(Type, name, symbol) static_cast<Type>(::tamaki::mpi::find_global("ompi_mpi_" symbol))
#else
#define TAMAKI_HANDLE(Type, name, symbol) (name)
#endif

}  // namespace tamaki::mpi
