/* An MPI program that knows nothing of Tamaki: sums vectors of growing size over all ranks, checks every element, and
 * times it. Built with an MPI's own mpicc and run under its mpirun, with or without the preload library in front:
 *
 *   mpirun -n 2 ./mpi_sums
 *   mpirun -n 2 -x LD_PRELOAD=libtamaki_mpi_openmpi.so ./mpi_sums
 *
 * Rank 0 prints a line a size: bytes, median microseconds, and a digest of the results (equal where they are).
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostFloats = 4 << 20, kMostRounds = 400 };

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Small whole numbers, so that every order of summation gives the same float. */
static float element(int rank, int i) { return (float)((i * 7 + rank * 3) % 101 - 50); }

static uint64_t digest(const float* values, int count) {
  uint64_t h = 1469598103934665603u;
  int i;
  for (i = 0; i < count; ++i) h = (h ^ (uint64_t)(int64_t)values[i]) * 1099511628211u;
  return h;
}

int main(int argc, char** argv) {
  int rank, size, floats, i, r, wrong = 0, all_wrong = 0;
  float *mine, *sum;
  static double times[kMostRounds];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = malloc(sizeof(float) * kMostFloats);
  sum = malloc(sizeof(float) * kMostFloats);
  if (mine == NULL || sum == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  for (i = 0; i < kMostFloats; ++i) mine[i] = element(rank, i);
  for (floats = 2; floats <= kMostFloats; floats *= 8) {
    const int rounds = floats <= 1024 ? kMostRounds : floats <= 65536 ? 100 : 15;
    double slowest;
    for (r = -rounds / 4; r < rounds; ++r) { /* the first quarter only warms up */
      double start;
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
      MPI_Allreduce(mine, sum, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (r >= 0) times[r] = MPI_Wtime() - start;
    }
    for (i = 0; i < floats; ++i) {
      float expected = 0;
      for (r = 0; r < size; ++r) expected += element(r, i);
      wrong += sum[i] != expected;
    }
    qsort(times, (size_t)rounds, sizeof times[0], ascending);
    MPI_Reduce(&times[rounds / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.2f %016llx\n", floats * sizeof(float), slowest * 1e6, (unsigned long long)digest(sum, floats));
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s: %d wrong elements\n", all_wrong == 0 ? "right" : "WRONG", all_wrong);
  MPI_Finalize();
  return rank == 0 && all_wrong != 0;
}
