#include "library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "base/log.hpp"

namespace tamaki::mpi {
namespace {

// Python and others load extension modules, and with them their MPI, outside the global scope: RTLD_NEXT
// does not see it, though calls of the module do reach this library, which is in the global scope.
void* find_local_mpi() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const char* name = info->dlpi_name;
        if (name == nullptr) return 0;
        const char* slash = std::strrchr(name, '/');
        const char* file = slash != nullptr ? slash + 1 : name;
        if (std::strncmp(file, "libmpi.so", 9) != 0 && std::strncmp(file, "libmpich.so", 11) != 0) return 0;
        *static_cast<std::string*>(data) = name;
        return 1;
      },
      &path);
  return path.empty() ? nullptr : ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void* local_symbol(const char* name) {
  static std::atomic<void*> handle{nullptr};
  void* mpi = handle.load(std::memory_order_acquire);
  if (mpi == nullptr) {
    mpi = find_local_mpi();
    if (mpi == nullptr) return nullptr;
    handle.store(mpi, std::memory_order_release);  // two threads get the same handle; it is kept for good
  }
  return ::dlsym(mpi, name);
}

bool is_open_mpi() { return find_global("ompi_mpi_comm_world") != nullptr; }

template <class Function>
bool look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(find_global(name));
  return function != nullptr;
}

void load(Library& into) {
  bool all = true;
#define TAMAKI_LOOK_UP(name) all = look_up(into.P##name, "PMPI_" #name) && all;
  TAMAKI_PMPI_FUNCTIONS(TAMAKI_LOOK_UP)
  TAMAKI_PMPI_CONVERSIONS(TAMAKI_LOOK_UP)
#undef TAMAKI_LOOK_UP
  if (find_global("PMPI_Init") == nullptr) return;  // no MPI yet
  if (is_open_mpi() != kOpenMpi) {
    log(Level::warn,
        kOpenMpi ? "libtamaki_mpi_openmpi.so is loaded into a program of another MPI; every call goes to "
                   "that MPI (for MPICH preload libtamaki_mpi_mpich.so)"
                 : "libtamaki_mpi_mpich.so is loaded into a program of Open MPI; every call goes to Open "
                   "MPI (preload libtamaki_mpi_openmpi.so)");
    into.foreign = true;
  } else if (!all) {
    log(Level::warn,
        "the MPI of this program lacks functions that the Tamaki preload needs; every call goes to MPI");
    into.foreign = true;
  } else {
    into.usable = true;
  }
}

}  // namespace

void* find_next(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  return found != nullptr ? found : local_symbol(name);
}

void* find_global(const char* name) {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : local_symbol(name);
}

const Library& library() {
  static std::atomic<const Library*> loaded{nullptr};
  if (const Library* ready = loaded.load(std::memory_order_acquire)) [[likely]]
    return *ready;
  static std::mutex mutex;
  static Library instance;
  static const Library nothing;
  const std::lock_guard lock(mutex);
  if (!instance.usable && !instance.foreign) {
    Library fresh;
    load(fresh);
    if (!fresh.usable && !fresh.foreign) return nothing;
    instance = fresh;
  }
  loaded.store(&instance, std::memory_order_release);  // pairs with the acquire above
  return instance;
}

}  // namespace tamaki::mpi
