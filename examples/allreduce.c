/* The smallest use of the C interface: every rank gives its number, every rank gets the sum.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs tamaki) -o allreduce && tamaki run -n 4 -- ./allreduce
 */
#include <stdio.h>
#include <tamaki/tamaki.h>

static int failed(const char* what, tmkComm_t comm) {
  fprintf(stderr, "%s: %s\n", what, tmkGetLastError(comm));
  return 1;
}

int main(void) {
  tmkComm_t comm = NULL;
  int rank = 0, size = 0;
  double mine[3], sum[3] = {0, 0, 0};
  if (tmkCommInitEnv(&comm, NULL) != tmkSuccess) return failed("start", NULL);
  tmkCommRank(comm, &rank);
  tmkCommSize(comm, &size);
  mine[0] = rank;
  mine[1] = rank * 0.5;
  mine[2] = 1;
  if (tmkAllreduce(mine, sum, 3, tmkFloat64, tmkSum, comm) != tmkSuccess) return failed("allreduce", comm);
  printf("rank %d of %d: %g %g %g\n", rank, size, sum[0], sum[1], sum[2]);
  if (sum[0] != size * (size - 1) / 2.0 || sum[2] != size) return 1;
  return tmkCommDestroy(comm) == tmkSuccess ? 0 : failed("end", NULL);
}
