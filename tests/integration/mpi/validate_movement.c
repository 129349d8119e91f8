/* MPI_Bcast and MPI_Allgather: every type, every root; types with gaps, whose signatures agree while
 * handles do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"

static unsigned char pattern(int rank, size_t i) {
  return (unsigned char)(i * 7 + i / 251 + (size_t)rank * 31 + 1);
}

static void one_bcast(MPI_Comm comm, const char* where, int rank, const Type* type, int count, int root) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
  const size_t bytes = (size_t)count * (size_t)size;
  unsigned char* buffer = malloc(bytes + 16);
  memset(buffer, GUARD, bytes + 16);
  if (rank == root)
    for (size_t i = 0; i < bytes; ++i) buffer[i] = pattern(root, i);
  MPI_OK(MPI_Bcast(buffer, count, type->handle, root, comm));
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong += buffer[i] != pattern(root, i);
  for (int i = 0; i < 16; ++i) wrong += buffer[bytes + (size_t)i] != GUARD;
  CHECK(wrong == 0, "MPI_Bcast on %s %s count %d root %d: %zu bytes wrong", where, type->name, count, root,
        wrong);
  free(buffer);
}

static void one_allgather(MPI_Comm comm, const char* where, int rank, int ranks, const Type* type,
                          int count, int in_place) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
  const size_t bytes = (size_t)count * (size_t)size, total = bytes * (size_t)ranks;
  unsigned char *send = malloc(bytes + 1), *recv = malloc(total + 16);
  memset(recv, GUARD, total + 16);
  for (size_t i = 0; i < bytes; ++i) (in_place ? recv + bytes * (size_t)rank : send)[i] = pattern(rank, i);
  MPI_OK(MPI_Allgather(in_place ? MPI_IN_PLACE : send, in_place ? 0 : count,
                       in_place ? MPI_DATATYPE_NULL : type->handle, recv, count, type->handle, comm));
  size_t wrong = 0;
  for (size_t i = 0; i < total; ++i) wrong += recv[i] != pattern((int)(i / bytes), i % bytes);
  for (int i = 0; i < 16; ++i) wrong += recv[total + (size_t)i] != GUARD;
  CHECK(wrong == 0, "MPI_Allgather on %s %s count %d: %zu bytes wrong", where, type->name, count, wrong);
  free(send), free(recv);
}

void test_movement(MPI_Comm comm, const char* where) {
  int rank = 0, ranks = 0, types = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  const Type* type = all_types(&types);
  static const int counts[] = {0, 1, 3, 100, 5000};
  const Type more[] = {{"MPI_CHAR", MPI_CHAR, KIND_SIGNED, GROUP_BYTE},
                       {"MPI_LONG_DOUBLE", MPI_LONG_DOUBLE, KIND_FLOAT, GROUP_BYTE},
                       {"MPI_2INT", MPI_2INT, KIND_SIGNED, GROUP_BYTE},
                       {"MPI_WCHAR", MPI_WCHAR, KIND_SIGNED, GROUP_BYTE}};
  for (int t = 0; t < types + 4; ++t)
    for (int c = 0; c < 5; ++c) {
      const Type* it = t < types ? &type[t] : &more[t - types];
      for (int root = 0; root < ranks; ++root) one_bcast(comm, where, rank, it, counts[c], root);
      one_allgather(comm, where, rank, ranks, it, counts[c], 0);
      one_allgather(comm, where, rank, ranks, it, counts[c], 1);
    }
  one_bcast(comm, where, rank, &type[0], 3000001, ranks - 1);
  one_allgather(comm, where, rank, ranks, &type[0], 700001, 0);
}

/* ---- Types with gaps ---- */

static void bcast_mixed(MPI_Comm comm, const char* where, int rank, int root, int blocks) {
  /* On odd ranks: pairs of ints with a gap of two, one element each; on even ranks: plain ints. */
  MPI_Datatype gaps, spaced;
  MPI_Type_vector(1, 2, 4, MPI_INT, &gaps);
  MPI_Type_create_resized(gaps, 0, 4 * (MPI_Aint)sizeof(int), &spaced);
  MPI_Type_commit(&spaced);
  const int use_gaps = rank % 2 == 1;
  int* data = malloc((size_t)blocks * 4 * sizeof *data);
  for (int i = 0; i < 4 * blocks; ++i) data[i] = -1;
  for (int i = 0; i < 2 * blocks && rank == root; ++i)
    data[use_gaps ? i / 2 * 4 + i % 2 : i] = i * 3 + root;
  if (use_gaps)
    MPI_OK(MPI_Bcast(data, blocks, spaced, root, comm));
  else if (rank % 4 == 0)
    MPI_OK(MPI_Bcast(data, 2 * blocks, MPI_INT, root, comm));
  else
    MPI_OK(MPI_Bcast(data, blocks, MPI_2INT, root, comm));
  int wrong = 0;
  for (int i = 0; i < 2 * blocks; ++i) wrong += data[use_gaps ? i / 2 * 4 + i % 2 : i] != i * 3 + root;
  for (int i = 0; i < blocks && use_gaps; ++i) wrong += data[4 * i + 2] != -1 || data[4 * i + 3] != -1;
  CHECK(wrong == 0, "MPI_Bcast on %s with mixed types, %d blocks, root %d: %d wrong", where, blocks, root,
        wrong);
  free(data);
  MPI_Type_free(&gaps), MPI_Type_free(&spaced);
}

static void bcast_bottom(MPI_Comm comm, const char* where, int rank, int root) {
  struct {
    char c;
    double d[3];
    short s;
  } a = {0};
  double apart = 0;
  MPI_Aint places[4];
  MPI_Get_address(&a.d[0], &places[0]);
  MPI_Get_address(&a.c, &places[1]); /* not in the order of memory */
  MPI_Get_address(&apart, &places[2]);
  MPI_Get_address(&a.s, &places[3]);
  const int lengths[4] = {3, 1, 1, 1};
  const MPI_Datatype parts[4] = {MPI_DOUBLE, MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
  MPI_Datatype absolute;
  MPI_Type_create_struct(4, lengths, places, parts, &absolute);
  MPI_Type_commit(&absolute);
  if (rank == root) a.c = 'x', a.d[0] = 1, a.d[1] = 2, a.d[2] = 3, a.s = 77, apart = 0.5;
  MPI_OK(MPI_Bcast(MPI_BOTTOM, 1, absolute, root, comm));
  CHECK(a.c == 'x' && a.d[0] == 1 && a.d[1] == 2 && a.d[2] == 3 && a.s == 77 && apart == 0.5,
        "MPI_Bcast on %s of MPI_BOTTOM, root %d", where, root);
  MPI_Type_free(&absolute);
}

static void allgather_columns(MPI_Comm comm, const char* where, int rank, int ranks, int in_place,
                              int send_gaps) {
  /* Each rank's block becomes a column of a row-major matrix. */
  enum { ROWS = 37 };
  MPI_Datatype vector, column, sparse;
  MPI_Type_vector(ROWS, 1, ranks, MPI_DOUBLE, &vector);
  MPI_Type_create_resized(vector, 0, sizeof(double), &column);
  MPI_Type_commit(&column);
  MPI_Type_vector(ROWS, 1, 2, MPI_DOUBLE, &sparse);
  MPI_Type_commit(&sparse);
  double* matrix = malloc((size_t)ranks * ROWS * sizeof *matrix);
  double send[2 * ROWS];
  for (int i = 0; i < 2 * ROWS; ++i)
    send[i] = send_gaps ? (i % 2 == 0 ? rank * 1000 + i / 2 : -1) : rank * 1000 + i;
  for (int i = 0; i < ROWS * ranks; ++i)
    matrix[i] = i % ranks == rank && in_place ? rank * 1000 + i / ranks : -1;
  if (in_place)
    MPI_OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, matrix, 1, column, comm));
  else if (send_gaps)
    MPI_OK(MPI_Allgather(send, 1, sparse, matrix, 1, column, comm));
  else
    MPI_OK(MPI_Allgather(send, ROWS, MPI_DOUBLE, matrix, 1, column, comm));
  int wrong = 0;
  for (int i = 0; i < ROWS * ranks; ++i) wrong += matrix[i] != i % ranks * 1000 + i / ranks;
  CHECK(wrong == 0, "MPI_Allgather on %s into columns (in place %d, gaps %d): %d wrong", where, in_place,
        send_gaps, wrong);
  free(matrix);
  MPI_Type_free(&vector), MPI_Type_free(&column), MPI_Type_free(&sparse);
}

static void pairs_with_gaps(MPI_Comm comm, const char* where, int rank, int root) {
  struct {
    double value;
    int place;
  } item[50];
  memset(item, 0, sizeof item);
  for (int i = 0; i < 50 && rank == root; ++i) item[i].value = i * 0.5, item[i].place = i;
  MPI_OK(MPI_Bcast(item, 50, MPI_DOUBLE_INT, root, comm));
  int wrong = 0;
  for (int i = 0; i < 50; ++i) wrong += item[i].value != i * 0.5 || item[i].place != i;
  CHECK(wrong == 0, "MPI_Bcast on %s of MPI_DOUBLE_INT", where);
  MPI_Datatype copy;
  MPI_Type_dup(MPI_DOUBLE, &copy);
  double d[9] = {0};
  for (int i = 0; i < 9 && rank == root; ++i) d[i] = i + 1;
  MPI_OK(rank % 2 ? MPI_Bcast(d, 9, copy, root, comm) : MPI_Bcast(d, 9, MPI_DOUBLE, root, comm));
  CHECK(d[0] == 1 && d[8] == 9, "MPI_Bcast on %s of a duplicated type", where);
  MPI_Type_free(&copy);
}

void test_derived(MPI_Comm comm, const char* where) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  for (int root = 0; root < ranks; ++root) {
    bcast_mixed(comm, where, rank, root, 1);
    bcast_mixed(comm, where, rank, root, 1000);
    bcast_bottom(comm, where, rank, root);
    pairs_with_gaps(comm, where, rank, root);
  }
  for (int gaps = 0; gaps < 2; ++gaps) allgather_columns(comm, where, rank, ranks, 0, gaps);
  allgather_columns(comm, where, rank, ranks, 1, 0);
}
