/* 10 calls that can be accelerated and 5 that cannot, from a program or (-DMODULE) from a module that brings its MPI with
 * it out of the global scope, as Python's do. */
#include <mpi.h>
#include <stdio.h>

#ifdef MODULE
#define MAIN run
int run(void);
int run(void)
#else
int main(void)
#endif
{
  int rank = 0, ranks = 0, sum = 0, wrong = 0;
  const int one = 1;
  long double wide = 1, wide_sum = 0;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < 10; ++i) {
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != ranks;
  }
  for (int i = 0; i < 5; ++i) {
    MPI_Allreduce(&wide, &wide_sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    wrong += wide_sum != ranks;
  }
  MPI_Finalize();
  if (wrong == 0 && rank == 0) printf("calls validated\n");
  return wrong;
}
