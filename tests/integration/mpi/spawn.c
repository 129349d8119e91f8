/* A world that spawns another: communicators across both go to MPI, those of one world do not mind. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Comm parent, between, merged;
  int sum = 0, ranks = 0, rank = 0, wrong = 0;
  const int one = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  const int is_child = parent != MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong += sum != 2;
  if (is_child) between = parent;
  else MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
  MPI_Intercomm_merge(between, is_child, &merged);
  MPI_Comm_size(merged, &ranks);
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
  wrong += sum != 4 || ranks != 4;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between);
  wrong += sum != 2;
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&between);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong += sum != 2;
  if (rank == 0 && wrong == 0) printf("%s validated\n", is_child ? "child" : "parent");
  MPI_Finalize();
  return wrong;
}
