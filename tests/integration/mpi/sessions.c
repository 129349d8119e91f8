/* MPI sessions (MPI 4): sessions alone | beside. Communicators made from a session's process set, without MPI_Init
 * ("alone") or next to it ("beside"). Prints a digest of the results, which must not depend on who computes them. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if MPI_VERSION >= 4
enum { MOST = 300 };
static int g_wrong;

static uint64_t calls(MPI_Comm comm) {
  int rank = 0, ranks = 0;
  uint64_t digest = 0;
  double in[MOST], out[MOST];
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  for (int round = 0; round < 30; ++round) {
    const int count = round * 10 + 1;
    for (int i = 0; i < count; ++i) in[i] = i + round * rank;
    int right = MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm) == MPI_SUCCESS;
    for (int i = 0; i < count; ++i) right = right && out[i] == i * ranks + round * ranks * (ranks - 1) / 2;
    for (int i = 0; i < count; ++i) digest = digest * 31 + (uint64_t)out[i];
    long word = rank == round % ranks ? 1000 + round : -1;
    right = right && MPI_Bcast(&word, 1, MPI_LONG, round % ranks, comm) == MPI_SUCCESS && word == 1000 + round;
    int sum = 0;
    MPI_Request request;
    right = right && MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request) == MPI_SUCCESS;
    right = right && MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && sum == ranks * (ranks - 1) / 2;
    if (!right) ++g_wrong, fprintf(stderr, "FAILED rank %d in round %d\n", rank, round);
  }
  return digest;
}

int main(int argc, char** argv) {
  const int beside = argc > 1 && strcmp(argv[1], "beside") == 0;
  uint64_t digest = 0;
  int rank = 0;
  if (beside) MPI_Init(&argc, &argv), digest = calls(MPI_COMM_WORLD);
  for (int turn = 0; turn < 2; ++turn) { /* a second session after the end of the first */
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm, twin;
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) return 2;
    if (MPI_Group_from_session_pset(session, "mpi://WORLD", &group) != MPI_SUCCESS) return 3;
    if (MPI_Comm_create_from_group(group, "tamaki test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) != MPI_SUCCESS) return 4;
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    digest = digest * 31 + calls(comm);
    MPI_Comm_dup(comm, &twin);
    digest = digest * 31 + calls(twin);
    MPI_Comm_free(&twin);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    if (!beside) break; /* MPICH 4.0.2 cannot start again once everything has ended */
  }
  if (beside) digest = digest * 31 + calls(MPI_COMM_WORLD), MPI_Finalize();
  if (rank == 0 && g_wrong == 0) printf("sessions validated, digest %016llx\n", (unsigned long long)digest);
  return g_wrong != 0;
}
#else
int main(void) {
  printf("no sessions in MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
  return 0;
}
#endif
