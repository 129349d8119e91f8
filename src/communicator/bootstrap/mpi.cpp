// MPI of this process, if there is one and it is initialised: the best exchange there can be. Found by name at run time;
// this library is linked to no MPI.

#include <dlfcn.h>

#include <cstdint>

#include "communicator/bootstrap/environment.hpp"

namespace tamaki::bootstrap {
namespace {

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

/// MPI handles are pointers to objects in Open MPI and fixed integers in MPICH and its descendants (the MPICH ABI).
template <class Handle>
Result<OuterAllgather> allgather_with(Handle world, Handle byte, const Launch& launch) {
  auto* rank_of = find<int(Handle, int*)>("PMPI_Comm_rank");
  auto* size_of = find<int(Handle, int*)>("PMPI_Comm_size");
  auto* allgather = find<int(const void*, int, Handle, void*, int, Handle, Handle)>("PMPI_Allgather");
  if (rank_of == nullptr || size_of == nullptr || allgather == nullptr)
    return fail(Code::system, "MPI is initialised, but its functions cannot be found by name");
  int rank = -1, size = -1;
  if (rank_of(world, &rank) != 0 || size_of(world, &size) != 0) return fail(Code::system, "MPI_Comm_rank failed");
  if (rank != launch.rank || size != launch.ranks)
    return fail(Code::system, "MPI_COMM_WORLD says rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                  ", the environment says rank " + std::to_string(launch.rank) + " of " +
                                  std::to_string(launch.ranks));
  return OuterAllgather([=](std::span<const std::byte> mine, std::span<std::byte> all) -> Status {
    const int bytes = static_cast<int>(mine.size());
    const int code = allgather(mine.data(), bytes, byte, all.data(), bytes, byte, world);
    if (code != 0) return fail(Code::system, "MPI_Allgather returned " + std::to_string(code));
    return {};
  });
}

}  // namespace

MpiState mpi_state() {
  auto* initialized = find<int(int*)>("PMPI_Initialized");
  auto* finalized = find<int(int*)>("PMPI_Finalized");
  if (initialized == nullptr || finalized == nullptr) return MpiState::absent;
  int yes = 0;
  if (finalized(&yes) == 0 && yes != 0) return MpiState::finalized;
  return initialized(&yes) == 0 && yes != 0 ? MpiState::initialized : MpiState::linked;
}

Result<OuterAllgather> mpi_allgather(const Launch& launch) {
  void* world = ::dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
  void* byte = ::dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
  if (world != nullptr && byte != nullptr) return allgather_with<void*>(world, byte, launch);
  auto* version = find<int(char*, int*)>("PMPI_Get_library_version");
  std::vector<char> text(8192 + 1);  // MPI_MAX_LIBRARY_VERSION_STRING of either is at most 8192
  int length = 0;
  if (version == nullptr || version(text.data(), &length) != 0) return fail(Code::system, "MPI of an unknown kind");
  const std::string_view name(text.data());
  for (const std::string_view kind : {"MPICH", "Intel(R) MPI", "MVAPICH", "Cray MPI"})
    if (name.find(kind) != std::string_view::npos)
      return allgather_with<int>(0x44000000, 0x4c00010d, launch);  // MPI_COMM_WORLD, MPI_BYTE of the MPICH ABI
  return fail(Code::system, "MPI of an unknown kind: " + std::string(name.substr(0, 60)));
}

}  // namespace tamaki::bootstrap
