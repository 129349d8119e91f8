/* validate [--skip-known] part...: see validate.h. Exit 0 if all is right on all ranks; prints "validated"
 * on rank 0. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "validate.h"

int g_failures, g_world_rank, g_skip_known;

void failed(const char* format, ...) {
  va_list arguments;
  if (++g_failures > 20) return;
  fprintf(stderr, "FAILED rank %d: ", g_world_rank);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

static void communicators(void) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  test_reductions(comm, "a duplicate", 0);
  test_derived(comm, "a duplicate");
  MPI_Comm again;
  MPI_Comm_dup(comm, &again); /* must not inherit what hangs on its parent */
  test_reductions(again, "a duplicate of a duplicate", 0);
  MPI_Comm_free(&comm);
  test_reductions(again, "a duplicate whose parent is gone", 0);
  MPI_Comm_free(&again);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
  test_reductions(comm, "reversed ranks", 0);
  test_movement(comm, "reversed ranks");
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 7, 0, &comm);
  if (comm != MPI_COMM_NULL) {
    test_reductions(comm, "all but rank 0", 0);
    MPI_Comm_free(&comm);
  }
  const int dims[1] = {ranks}, periods[1] = {1};
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &comm);
  test_reductions(comm, "a ring topology", 0);
  MPI_Comm_free(&comm);
  test_reductions(MPI_COMM_SELF, "MPI_COMM_SELF", 0);
  test_movement(MPI_COMM_SELF, "MPI_COMM_SELF");
}

/* One rank is killed amid collectives. Prints what the others are told. */
static void be_killed(void) {
  int rank = 0, ranks = 0, sum = 0, length = 0;
  char text[MPI_MAX_ERROR_STRING];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int i = 0;; ++i) {
    if (i == 1000 && rank == ranks - 1) raise(SIGKILL);
    const int code = MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS) continue;
    MPI_Error_string(code, text, &length);
    printf("rank %d was told in round %d: %s\n", rank, i, text);
    fflush(stdout);
    const int again = MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d is told %s\n", rank, again == MPI_SUCCESS ? "nothing" : "again");
    fflush(stdout);
    _exit(3);
  }
}

/* A rank is late by `seconds`. Without a deadline it is waited for. */
static void be_late(int seconds) {
  int rank = 0, ranks = 0, sum = 0;
  const int one = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  if (rank == 0) sleep((unsigned)seconds);
  MPI_OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(sum == ranks, "sum after a late rank");
}

int main(int argc, char** argv) {
  int provided = 0, threads = 0, total = 0, ranks = 0;
  for (int i = 1; i < argc; ++i) threads = threads || strcmp(argv[i], "threads") == 0;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i < argc; ++i) {
    const char* part = argv[i];
    if (strcmp(part, "--skip-known") == 0)
      g_skip_known = 1;
    else if (strcmp(part, "reductions") == 0)
      test_reductions(MPI_COMM_WORLD, "MPI_COMM_WORLD", 1);
    else if (strcmp(part, "few_reductions") == 0) test_reductions(MPI_COMM_WORLD, "MPI_COMM_WORLD", 0);
    else if (strcmp(part, "movement") == 0)
      test_movement(MPI_COMM_WORLD, "MPI_COMM_WORLD");
    else if (strcmp(part, "derived") == 0)
      test_derived(MPI_COMM_WORLD, "MPI_COMM_WORLD");
    else if (strcmp(part, "communicators") == 0)
      communicators();
    else if (strcmp(part, "intercommunicator") == 0)
      test_intercommunicator();
    else if (strcmp(part, "passed") == 0)
      test_passed_through(MPI_COMM_WORLD);
    else if (strcmp(part, "errors") == 0)
      test_errors();
    else if (strcmp(part, "progress") == 0)
      test_progress();
    else if (strcmp(part, "lifecycle") == 0)
      test_lifecycle(60);
    else if (strcmp(part, "threads") == 0 && provided == MPI_THREAD_MULTIPLE)
      test_threads(4, 300);
    else if (strcmp(part, "threads") == 0)
      fprintf(stderr, "MPI_THREAD_MULTIPLE is not provided\n");
    else if (strcmp(part, "killed") == 0)
      be_killed();
    else if (strcmp(part, "late") == 0)
      be_late(3);
    else if (strcmp(part, "unfinalized") == 0)
      test_passed_through(MPI_COMM_WORLD), exit(0);
    else
      failed("no part is named %s", part);
  }
  PMPI_Allreduce(&g_failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (g_world_rank == 0)
    printf(total == 0 ? "validated on %d ranks\n" : "%d failures\n", total == 0 ? ranks : total);
  MPI_Finalize();
  return total == 0 ? 0 : 1;
}
