/* A tool that another party preloads: counts the MPI_Allreduce calls it sees and passes them on. -DWITH_PMPI: to PMPI_, as
 * most tools do; else to the next library in line. Says its count at MPI_Finalize. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int g_calls;

int MPI_Allreduce(const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++g_calls;
#ifdef WITH_PMPI
  return PMPI_Allreduce(send, recv, count, type, op, comm);
#else
  int (*next)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) = NULL;
  *(void**)&next = dlsym(RTLD_NEXT, "MPI_Allreduce");
  return next(send, recv, count, type, op, comm);
#endif
}

int MPI_Finalize(void) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("tool of rank %d saw %d\n", rank, g_calls);
  fflush(stdout);
  return PMPI_Finalize();
}
