/* overhead: ns per call of MPI functions that the preload passes on. Run on one rank, with the preload and without, in
 * turn; the difference of the medians is its cost. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 200000, RUNS = 15 };
static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Processor time: what other processes take does not count. */
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char** argv) {
  double times[RUNS];
  long double wide = 1, wide_sum;
  int one = 1, sum;
  MPI_Init(&argc, &argv);
  static const char* const names[] = {"MPI_Allreduce one rank", "MPI_Allreduce long double", "MPI_Bcast one rank"};
  for (int kind = 0; kind < 3; ++kind) {
    for (int run = 0; run < RUNS; ++run) {
      const double began = seconds();
      for (int i = 0; i < CALLS; ++i)
        if (kind == 0) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        else if (kind == 1) MPI_Allreduce(&wide, &wide_sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else MPI_Bcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);
      times[run] = (seconds() - began) / CALLS * 1e9;
    }
    qsort(times, RUNS, sizeof *times, compare);
    printf("%-28s median %.1f ns, least %.1f ns\n", names[kind], times[RUNS / 2], times[0]);
  }
  MPI_Finalize();
  return 0;
}
