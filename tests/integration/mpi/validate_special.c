/* What is left to MPI, errors, intercommunicators, progress of other traffic, life cycles, threads. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "validate.h"

static void multiply(void* in, void* inout, int* count,
                     MPI_Datatype* type) { /* 2x2 matrices: not commutative */
  (void)type;
  double *a = in, *b = inout;
  for (int i = 0; i < *count; ++i, a += 4, b += 4) {
    const double c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                         a[2] * b[1] + a[3] * b[3]};
    memcpy(b, c, sizeof c);
  }
}

void test_passed_through(MPI_Comm comm) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);

  MPI_Op product;
  MPI_Datatype matrix;
  MPI_Op_create(multiply, 0, &product);
  MPI_Type_contiguous(4, MPI_DOUBLE, &matrix);
  MPI_Type_commit(&matrix);
  double mine[4] = {1, rank + 1, 0, 1}, got[4], wanted[4] = {1, 1, 0, 1};
  if (rank % 2) mine[1] = 0, mine[2] = rank;
  for (int r = 1; r < ranks; ++r) {
    double next[4] = {1, r % 2 ? 0 : r + 1, r % 2 ? r : 0, 1}, left[4];
    int one = 1;
    memcpy(left, wanted, sizeof left);
    memcpy(wanted, next, sizeof next);
    multiply(left, wanted, &one, &matrix);
  }
  MPI_OK(MPI_Allreduce(mine, got, 1, matrix, product, comm));
  CHECK(memcmp(got, wanted, sizeof got) == 0, "MPI_Allreduce of a non-commutative user operation");
  MPI_Op_free(&product);
  MPI_Type_free(&matrix);

  struct {
    double value;
    int place;
  } pair = {(double)((rank * 5) % 7), rank}, least;
  MPI_OK(MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm));
  CHECK(least.value == 0 && least.place == 0, "MPI_Allreduce MPI_MINLOC");
  long double wide = 1.0L + rank, sum = 0;
  MPI_OK(MPI_Allreduce(&wide, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, comm));
  CHECK(sum == ranks + (long double)ranks * (ranks - 1) / 2, "MPI_Allreduce of long double");

  int a[3] = {rank, 1, 2}, b[3], c[3];
  MPI_Request request;
  MPI_OK(MPI_Iallreduce(a, b, 3, MPI_INT, MPI_SUM, comm, &request));
  MPI_OK(MPI_Allreduce(a, c, 3, MPI_INT, MPI_SUM, comm)); /* another collective while one is on its way */
  MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(memcmp(b, c, sizeof b) == 0 && c[1] == ranks, "MPI_Iallreduce beside MPI_Allreduce");
}

static int class_of(int code) {
  int class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  return class;
}

/* Errors of arguments come from MPI, with MPI's classes. Made by all ranks alike. */
void test_errors(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  double x[8] = {0}, y[8] = {0};
  MPI_OK(MPI_Allreduce(x, y, 8, MPI_DOUBLE, MPI_SUM, comm));
#ifdef OPEN_MPI /* MPICH 4.0.2 computes with negative counts and crashes */
  CHECK(class_of(MPI_Allreduce(x, y, -1, MPI_DOUBLE, MPI_SUM, comm)) == MPI_ERR_COUNT,
        "count -1 is not MPI_ERR_COUNT");
  CHECK(class_of(MPI_Bcast(x, -3, MPI_DOUBLE, 0, comm)) == MPI_ERR_COUNT, "MPI_Bcast of -3: wrong class");
#endif
  const int no_type = class_of(MPI_Allreduce(x, y, 1, MPI_DATATYPE_NULL, MPI_SUM, comm));
  CHECK(no_type == MPI_ERR_TYPE || no_type == MPI_ERR_OP, "no type: class %d", no_type);
  CHECK(class_of(MPI_Allreduce(x, y, 1, MPI_DOUBLE, MPI_OP_NULL, comm)) == MPI_ERR_OP,
        "no operation: wrong class");
  CHECK(class_of(MPI_Allreduce(x, y, 1, MPI_DOUBLE, MPI_BAND, comm)) == MPI_ERR_OP,
        "MPI_BAND of doubles: wrong class");
  CHECK(class_of(MPI_Allreduce(x, y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL)) == MPI_ERR_COMM,
        "null communicator");
  CHECK(class_of(MPI_Bcast(x, 1, MPI_DOUBLE, ranks, comm)) == MPI_ERR_ROOT,
        "root beyond the end: wrong class");
  if (ranks > 1)
    CHECK(class_of(MPI_Allreduce(x, x, 8, MPI_DOUBLE, MPI_SUM, comm)) == MPI_ERR_BUFFER,
          "same buffers: wrong class");
  MPI_OK(MPI_Allreduce(x, y, 8, MPI_DOUBLE, MPI_SUM, comm));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_free(&comm);
}

void test_intercommunicator(void) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2) return;
  MPI_Comm half, inter, merged;
  const int side = rank % 2;
  MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 9, &inter);
  int value = rank + 1, got = 0, wanted = 0;
  for (int r = 1 - side; r < ranks; r += 2) wanted += r + 1; /* of the other side */
  MPI_OK(MPI_Allreduce(&value, &got, 1, MPI_INT, MPI_SUM, inter));
  CHECK(got == wanted, "MPI_Allreduce on an intercommunicator: %d, not %d", got, wanted);
  int half_rank = 0;
  MPI_Comm_rank(half, &half_rank);
  int data = side == 0 && half_rank == 0 ? 4711 : 0;
  MPI_OK(MPI_Bcast(&data, 1, MPI_INT, side == 1 ? 0 : half_rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
  if (side == 1) CHECK(data == 4711, "MPI_Bcast on an intercommunicator");
  MPI_Intercomm_merge(inter, side, &merged);
  test_reductions(merged, "a merged communicator", 0);
  MPI_Comm_free(&merged), MPI_Comm_free(&inter), MPI_Comm_free(&half);
}

/* A rank that waits in a collective must let its other MPI traffic go on: its peer needs it to get there.
 */
void test_progress(void) {
  enum { COUNT = 1 << 21 };
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2) return;
  int* data = calloc(COUNT, sizeof *data);
  int one = 1, sum = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 0) {
    for (int i = 0; i < COUNT; ++i) data[i] = i;
    MPI_OK(MPI_Isend(data, COUNT, MPI_INT, 1, 5, MPI_COMM_WORLD, &request));
  } else if (rank == 1) {
    usleep(50000); /* rank 0 is in the collective by then */
    MPI_OK(MPI_Recv(data, COUNT, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(data[1] == 1 && data[COUNT - 1] == COUNT - 1, "the message beside a collective is wrong");
  }
  MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(sum == ranks, "the collective beside a message is wrong");
  /* The same with a nonblocking collective that rank 1 completes first. */
  int in[4] = {rank, 1, 2, 3}, out[4];
  MPI_OK(MPI_Iallreduce(in, out, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  if (rank != 0) MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  MPI_OK(MPI_Bcast(data, 100, MPI_INT, ranks - 1, MPI_COMM_WORLD));
  MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(out[1] == ranks && sum == ranks, "the collectives beside each other are wrong");
  free(data);
}

static int entries(const char* folder) {
  int count = 0;
  DIR* d = opendir(folder);
  while (d != NULL && readdir(d) != NULL) ++count;
  if (d != NULL) closedir(d);
  return count;
}
static long resident_kib(void) {
  long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (f != NULL && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
  if (f != NULL) fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Communicators come and go, their handles are used again, their sizes change. */
void test_lifecycle(int rounds) {
  int rank = 0, ranks = 0, threads = 0, descriptors = 0;
  long memory = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < rounds; ++i) {
    MPI_Comm comm;
    if (i % 3 == 0)
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    else
      MPI_Comm_split(MPI_COMM_WORLD, i % 3 == 1 ? 0 : rank % 2, i % 3 == 1 ? -rank : rank, &comm);
    int local_ranks = 0, local_rank = 0, sum = 0, root = 0;
    MPI_Comm_size(comm, &local_ranks);
    MPI_Comm_rank(comm, &local_rank);
    const int one = 1;
    if (i % 5 != 4) MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    if (i % 5 != 4) CHECK(sum == local_ranks, "round %d: a sum of %d over %d ranks", i, sum, local_ranks);
    root = local_rank == local_ranks - 1 ? i : -1;
    MPI_OK(MPI_Bcast(&root, 1, MPI_INT, local_ranks - 1, comm));
    CHECK(root == i, "round %d: broadcast gave %d", i, root);
    MPI_Comm_free(&comm);
    if (i == rounds / 2) {
      threads = entries("/proc/self/task");
      descriptors = entries("/proc/self/fd");
      memory = resident_kib();
    }
  }
  usleep(100000); /* threads that have been joined may still be listed */
  CHECK(entries("/proc/self/task") <= threads, "threads grew from %d to %d", threads,
        entries("/proc/self/task"));
  CHECK(entries("/proc/self/fd") <= descriptors, "descriptors grew from %d to %d", descriptors,
        entries("/proc/self/fd"));
  CHECK(resident_kib() < memory + 4096, "memory grew from %ld to %ld KiB", memory, resident_kib());
}

typedef struct {
  MPI_Comm comm;
  int number, rounds;
} Work;

static void* work(void* argument) {
  const Work* w = argument;
  int ranks = 0, rank = 0;
  MPI_Comm_size(w->comm, &ranks);
  MPI_Comm_rank(w->comm, &rank);
  for (int i = 0; i < w->rounds; ++i) {
    int in[5], out[5];
    for (int k = 0; k < 5; ++k) in[k] = w->number * 1000 + i + k + rank;
    MPI_OK(MPI_Allreduce(in, out, 5, MPI_INT, MPI_SUM, w->comm));
    for (int k = 0; k < 5; ++k)
      CHECK(out[k] == ranks * (w->number * 1000 + i + k) + ranks * (ranks - 1) / 2, "thread %d round %d",
            w->number, i);
    int data = rank == i % ranks ? i * 7 + w->number : -1;
    MPI_OK(MPI_Bcast(&data, 1, MPI_INT, i % ranks, w->comm));
    CHECK(data == i * 7 + w->number, "thread %d round %d: broadcast", w->number, i);
  }
  return NULL;
}

/* Threads with a communicator each, in no order; the first collective of each meets those of the others. */
void test_threads(int threads, int rounds) {
  pthread_t* thread = malloc((size_t)threads * sizeof *thread);
  Work* w = malloc((size_t)threads * sizeof *w);
  for (int t = 0; t < threads; ++t) {
    w[t] = (Work){MPI_COMM_NULL, t, rounds};
    MPI_Comm_dup(MPI_COMM_WORLD, &w[t].comm);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int t = 0; t < threads; ++t) { /* the other way round on odd ranks */
    const int which = rank % 2 ? threads - 1 - t : t;
    pthread_create(&thread[which], NULL, work, &w[which]);
  }
  for (int t = 0; t < threads; ++t) pthread_join(thread[t], NULL);
  for (int t = 0; t < threads; ++t) MPI_Comm_free(&w[t].comm);
  free(thread), free(w);
}
