/* The large-count forms of MPI 4 (MPI_Allreduce_c, ...): large_count [huge]. Every result is checked against what it must
 * be, and a digest of all of them is printed, which must not depend on who computes it. "huge": more elements than an int
 * counts. Where MPI has none of these forms it says so. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4
static int g_wrong, g_rank, g_ranks;
static uint64_t g_digest = 1469598103934665603u;

static void keep(const void* data, size_t bytes) { /* FNV-1a */
  const unsigned char* at = data;
  for (size_t i = 0; i < bytes; ++i) g_digest = (g_digest ^ at[i]) * 1099511628211u;
}

static void check(int right, const char* what, long long count) {
  if (right) return;
  ++g_wrong;
  fprintf(stderr, "FAILED rank %d: %s of %lld\n", g_rank, what, count);
}

static void all_forms(MPI_Count n) {
  const size_t count = (size_t)n, all = count * (size_t)g_ranks;
  double *in = malloc((all + 1) * sizeof *in), *out = malloc((all + 1) * sizeof *out), sum = 0;
  MPI_Count* counts = malloc((size_t)g_ranks * sizeof *counts);
  for (int r = 0; r < g_ranks; ++r) sum += r + 1;
  int right;

  for (size_t i = 0; i < count; ++i) in[i] = (double)(i % 97) * (g_rank + 1);
  right = MPI_Allreduce_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)(i % 97) * sum;
  check(right, "MPI_Allreduce_c", n), keep(out, count * sizeof *out);
  memcpy(out, in, count * sizeof *in);
  right = MPI_Allreduce_c(MPI_IN_PLACE, out, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)(i % 97) * g_ranks;
  check(right, "MPI_Allreduce_c in place", n), keep(out, count * sizeof *out);

  /* A function and its large form are one collective: rank 0 may call the one, the others the other. */
  right = g_rank == 0 ? MPI_Allreduce(in, out, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS
                      : MPI_Allreduce_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)(i % 97) * sum;
  check(right, "MPI_Allreduce with MPI_Allreduce_c", n), keep(out, count * sizeof *out);

  right = MPI_Allgather_c(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < all; ++i) right = right && out[i] == (double)(i % count % 97) * (double)(i / count + 1);
  check(right, "MPI_Allgather_c", n), keep(out, all * sizeof *out);

  const int root = g_ranks - 1;
  for (size_t i = 0; i < count; ++i) out[i] = g_rank == root ? (double)i : -1;
  right = MPI_Bcast_c(out, n, MPI_DOUBLE, root, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)i;
  check(right, "MPI_Bcast_c", n), keep(out, count * sizeof *out);

  for (size_t i = 0; i < all; ++i) in[i] = (double)(i % 89) * (g_rank + 1);
  right = MPI_Reduce_scatter_block_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)((i + count * (size_t)g_rank) % 89) * sum;
  check(right, "MPI_Reduce_scatter_block_c", n);
  for (int r = 0; r < g_ranks; ++r) counts[r] = r == 0 ? n - n / 2 : r == g_ranks - 1 ? n + n / 2 : n;
  size_t before = 0;
  for (int r = 0; r < g_rank; ++r) before += (size_t)counts[r];
  if (g_ranks == 1) counts[0] = n;
  right = MPI_Reduce_scatter_c(in, out, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (size_t i = 0; i < (size_t)counts[g_rank] && i < all; ++i) right = right && out[i] == (double)((i + before) % 89) * sum;
  check(right, "MPI_Reduce_scatter_c", n);

  MPI_Request request;
  right = MPI_Iallreduce_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS &&
          MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  for (size_t i = 0; i < count; ++i) right = right && out[i] == (double)(i % 89) * sum;
  check(right, "MPI_Iallreduce_c", n), keep(out, count * sizeof *out);
  free(in), free(out), free(counts);
}

static void huge(void) {
  const MPI_Count n = (MPI_Count)INT32_MAX + 6;
  unsigned char* data = malloc((size_t)n);
  if (data == NULL) {
    check(0, "memory", n);
    return;
  }
  memset(data, 1 + g_rank, (size_t)n);
  data[n - 1] = (unsigned char)(100 + g_rank);
  int right = MPI_Allreduce_c(MPI_IN_PLACE, data, n, MPI_UINT8_T, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS;
  for (MPI_Count i = 0; i < n - 1; i += 4099) right = right && data[i] == g_ranks;
  right = right && data[n - 2] == g_ranks && data[n - 1] == 99 + g_ranks;
  check(right, "MPI_Allreduce_c", n), keep(data + n - 4096, 4096);
  free(data);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
  if (argc > 1 && strcmp(argv[1], "huge") == 0) {
    huge();
  } else {
    const MPI_Count counts[] = {1, 2, 7, 64, 1000, 40000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) all_forms(counts[i]);
  }
  int total = 0;
  MPI_Reduce(&g_wrong, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (g_rank == 0 && total == 0) printf("large counts validated, digest %016llx\n", (unsigned long long)g_digest);
  MPI_Finalize();
  return g_wrong != 0;
}
#else
int main(void) {
  printf("no large-count forms in MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
  return 0;
}
#endif
