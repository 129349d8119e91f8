/* Preloaded in front of everything: the rank of DIE_RANK is killed as it enters the n-th call of a function
 * that the set-up of a communicator makes; DIE_AT="PMPI_Allgather 2". Rank and number of the calls seen are
 * printed by the program's end, so that a test knows which n there are. Only calls after MPI_Init count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int g_initialized, g_allgathers, g_memfds, g_connects, g_accepts;

static void here(const char* name, int* seen) {
  if (!__atomic_load_n(&g_initialized, __ATOMIC_ACQUIRE)) return;
  const int now = __atomic_add_fetch(seen, 1, __ATOMIC_RELAXED);
  const char *point = getenv("DIE_AT"), *rank = getenv("DIE_RANK");
  const char* own = getenv("PMI_RANK") != NULL ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
  if (point == NULL || rank == NULL || own == NULL || atoi(own) != atoi(rank)) return;
  const size_t length = strlen(name);
  if (strncmp(point, name, length) == 0 && point[length] == ' ' && atoi(point + length) == now) raise(SIGKILL);
}

#define NEXT(name) (*(void**)&next = dlsym(RTLD_NEXT, name))

int PMPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count, MPI_Datatype recv_type,
                   MPI_Comm comm) {
  int (*next)(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm) = NULL;
  NEXT("PMPI_Allgather");
  here("PMPI_Allgather", &g_allgathers);
  return next(send, send_count, send_type, recv, recv_count, recv_type, comm);
}

int memfd_create(const char* name, unsigned flags) {
  int (*next)(const char*, unsigned) = NULL;
  NEXT("memfd_create");
  here("memfd_create", &g_memfds);
  return next(name, flags);
}

int connect(int socket, const struct sockaddr* address, socklen_t length) {
  int (*next)(int, const struct sockaddr*, socklen_t) = NULL;
  NEXT("connect");
  here("connect", &g_connects);
  return next(socket, address, length);
}

int accept4(int socket, struct sockaddr* address, socklen_t* length, int flags) {
  int (*next)(int, struct sockaddr*, socklen_t*, int) = NULL;
  NEXT("accept4");
  const int made = next(socket, address, length, flags);
  if (made >= 0) here("accept4", &g_accepts); /* how often nobody is there is a matter of time */
  return made;
}

int MPI_Init(int* argc, char*** argv) {
  const int code = PMPI_Init(argc, argv);
  __atomic_store_n(&g_initialized, 1, __ATOMIC_RELEASE);
  return code;
}

int MPI_Finalize(void) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  __atomic_store_n(&g_initialized, 0, __ATOMIC_RELEASE);
  printf("rank %d saw PMPI_Allgather %d memfd_create %d connect %d accept4 %d\n", rank, g_allgathers, g_memfds, g_connects,
         g_accepts);
  fflush(stdout);
  return PMPI_Finalize();
}
