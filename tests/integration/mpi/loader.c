/* loader module.so: runs a module whose MPI stays out of the global scope. Not linked to MPI. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* module = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (module == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*run)(void) = NULL;
  *(void**)&run = dlsym(module, "run");
  return run == NULL ? 1 : run();
}
