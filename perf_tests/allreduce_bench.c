/* One allreduce benchmark, three ways of calling: plain MPI (which may have the preload in front), and Tamaki with
 * private or tmkMemAlloc buffers. The loop is the same for all: so is what it measures.
 *
 *   allreduce_bench [options]        under mpirun (compiled with -DBENCH_MPI) or `tamaki run`
 *     -b BYTES,BYTES,...   sizes (8)
 *     -p out|in            out of place or in place (out)
 *     -m private|shared    buffers of mmap, or of tmkMemAlloc (private); shared only with Tamaki
 *     -r N                 repetitions, of which rank 0 prints every time (11)
 *     -t SECONDS           about how long one repetition takes: the number of calls follows from it (0.02)
 *     -f BYTES             footprint: sizes of 1 MiB and more go round a ring of buffers that
 *                          together exceed it, so that data comes from memory and not from a cache (0: one buffer)
 *     -d                   ranks dealt out over hosts (rank 0 of each, then rank 1 of each, ...); only with Tamaki
 *     -c                   pass-through cost: MPI_Allreduce of one rank alone (MPI_COMM_SELF), time per call
 *
 * Output of rank 0, one line a size: "BYTES CALLS us us us ..." - the slowest rank's time per call, repetition by
 * repetition. Exit status 1 with a message where a result is wrong, 2 for wrong usage, 3 for an error of the library.
 *
 * Every page is touched before the clock starts; ranks are expected to be bound to cores by their launcher.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef BENCH_MPI
#include <mpi.h>
#else
#include <tamaki/tamaki.h>
#endif

enum { MAX_SIZES = 64, MAX_REPETITIONS = 1000, WARM_UP = 5 };

static int rank, ranks = 1;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef BENCH_MPI
static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}
static void start(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}
static void finish(void) { MPI_Finalize(); }
static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static double slowest(double own) {
  double all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}
static inline int allreduce(const float* in, float* out, size_t count) {
  return MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void* shared_memory(size_t bytes) {
  (void)bytes;
  return NULL;
}
#else
static tmkComm_t comm;
static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, tmkGetLastError(comm));
  exit(3);
}
static void start(int* argc, char*** argv) {
  (void)argc, (void)argv;
  if (tmkCommInitEnv(&comm, NULL) != tmkSuccess) fail("tmkCommInitEnv");
  tmkCommRank(comm, &rank);
  tmkCommSize(comm, &ranks);
}
static void deal_out(void) {
  const char* local = getenv("TAMAKI_LOCAL_RANK");
  if (local == NULL) fail("-d: TAMAKI_LOCAL_RANK is not set");
  tmkComm_t world = comm, dealt = NULL;
  if (tmkCommSplit(world, 0, atoi(local) * ranks + rank, &dealt, NULL) != tmkSuccess) fail("tmkCommSplit");
  comm = dealt;  /* the world stays until the process ends */
  tmkCommRank(comm, &rank);
}
static void finish(void) { tmkCommDestroy(comm); }
static void barrier(void) {
  if (tmkBarrier(comm) != tmkSuccess) fail("tmkBarrier");
}
static double slowest(double own) {
  double all = 0;
  if (tmkAllreduce(&own, &all, 1, tmkFloat64, tmkMax, comm) != tmkSuccess) fail("collecting times");
  return all;
}
static inline int allreduce(const float* in, float* out, size_t count) {
  return tmkAllreduce(in, out, count, tmkFloat32, tmkSum, comm);
}
static void* shared_memory(size_t bytes) {
  void* memory = NULL;
  return tmkMemAlloc(&memory, bytes) == tmkSuccess ? memory : NULL;
}
#endif

/* Private memory on huge pages where there are any: the machine at its best for everybody. */
static void* private_memory(size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  bytes = (bytes + huge - 1) / huge * huge;
  char* memory = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  memory = (char*)(((size_t)memory + huge - 1) / huge * huge);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

static size_t parse_bytes(const char* text) {
  char* end;
  size_t value = strtoull(text, &end, 10);
  if (*end == 'K') value <<= 10;
  if (*end == 'M') value <<= 20;
  if (*end == 'G') value <<= 30;
  return value;
}

static void check(const float* in, float* out, size_t count) {
  float* begin = in == out ? out : (float*)in;
  for (size_t i = 0; i < count; ++i) begin[i] = (float)(rank + 1) * (float)(i % 13);
  if (allreduce(in, out, count) != 0) fail("allreduce");
  const float sum = (float)(ranks * (ranks + 1) / 2);
  for (size_t i = 0; i < count; ++i)
    if (out[i] != sum * (float)(i % 13)) {
      fprintf(stderr, "rank %d: element %zu of %zu is %g, not %g\n", rank, i, count, (double)out[i], (double)(sum * (float)(i % 13)));
      exit(1);
    }
  for (size_t i = 0; i < count; ++i) begin[i] = 0;  /* in place, sums of sums of anything else would overflow */
}

int main(int argc, char** argv) {
  size_t sizes[MAX_SIZES] = {8}, footprint = 0;
  int size_count = 1, repetitions = 11, in_place = 0, shared = 0, alone = 0, dealt_out = 0, option;
  double seconds = 0.02;
  start(&argc, &argv);
  while ((option = getopt(argc, argv, "b:p:m:r:t:f:cd")) != -1) switch (option) {
      case 'b':
        size_count = 0;
        for (char* part = strtok(optarg, ","); part != NULL && size_count < MAX_SIZES; part = strtok(NULL, ","))
          sizes[size_count++] = parse_bytes(part);
        break;
      case 'p': in_place = strcmp(optarg, "in") == 0; break;
      case 'm': shared = strcmp(optarg, "shared") == 0; break;
      case 'r': repetitions = atoi(optarg); break;
      case 't': seconds = atof(optarg); break;
      case 'f': footprint = parse_bytes(optarg); break;
      case 'c': alone = 1; break;
      case 'd': dealt_out = 1; break;
      default: return 2;
    }
  if (repetitions < 1 || repetitions > MAX_REPETITIONS) return 2;
#ifndef BENCH_MPI
  if (dealt_out) deal_out();
#else
  if (dealt_out) return 2;
#endif

#ifdef BENCH_MPI
  if (alone) {
    for (int k = 0; k < repetitions; ++k) {
      float in = 1, out = 0;
      const int calls = 1000000;
      const double begin = now();
      for (int i = 0; i < calls; ++i) MPI_Allreduce(&in, &out, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF);
      const double us = (now() - begin) / calls * 1e6;
      if (rank == 0) printf("%s%.5f%s", k == 0 ? "4 1000000 " : " ", us, k + 1 == repetitions ? "\n" : "");
    }
    finish();
    return 0;
  }
#endif
  (void)alone;

  size_t largest = 0;
  for (int s = 0; s < size_count; ++s)
    if (sizes[s] > largest) largest = sizes[s];
  /* Room for the ring of buffers, whole pages each, inputs and outputs. */
  const size_t page = 4096, need = (largest + page) + footprint;
  float* memory[2];
  for (int i = 0; i < 2; ++i) {
    memory[i] = shared ? shared_memory(need) : private_memory(need);
    if (memory[i] == NULL) fail("no memory");
    memset(memory[i], 0, need);
  }
  for (int s = 0; s < size_count; ++s) {
    const size_t count = sizes[s] / sizeof(float), stride = (sizes[s] + page - 1) / page * page / sizeof(float);
    const int large = sizes[s] >= ((size_t)1 << 20);
    size_t buffers = large ? footprint / (stride * sizeof(float)) : 1;
    if (buffers < 1) buffers = 1;
    float* out0 = memory[1];
    const float* in0 = in_place ? memory[1] : memory[0];
    check(in0, out0, count);
    /* Calls a repetition: rank 0's estimate, made the same everywhere. */
    for (int i = 0; i < WARM_UP; ++i) allreduce(in0, out0, count);
    barrier();
    allreduce(in0, out0, count); /* ranks leave a barrier apart from each other, more so than an allreduce */
    double begin = now();
    int tried = 0;
    do allreduce(in0, out0, count);
    while (++tried < 10);
    const double each = slowest((now() - begin) / tried);
    int calls = (int)(seconds / (each > 1e-8 ? each : 1e-8));
    if (calls < 3) calls = 3;
    if (calls > 1000000) calls = 1000000;
    if (rank == 0) printf("%zu %d", sizes[s], calls);
    for (int k = 0; k < repetitions; ++k) {
      barrier();
      allreduce(in0, out0, count);
      begin = now();
      for (int i = 0; i < calls; ++i) {
        const size_t at = (size_t)i % buffers * stride;
        allreduce(in0 + at, out0 + at, count);
      }
      const double us = slowest((now() - begin) / calls) * 1e6;
      if (rank == 0) printf(" %.4f", us);
    }
    if (rank == 0) {
      printf("\n");
      fflush(stdout);
    }
  }
  finish();
  return 0;
}
