/* Reducing collectives: every type, operation, count, place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"

typedef struct {
  MPI_Comm comm;
  const char* where;
  int rank, ranks;
} Place;

static unsigned g_seed = 1;

/* -0 equals +0 here: the order of a product decides its sign. */
static int same(const void* a, const void* b, const Type* type, int size) {
  if (type->kind == KIND_FLOAT && size == 4) {
    float x, y;
    memcpy(&x, a, 4), memcpy(&y, b, 4);
    return x == y;
  }
  if (type->kind == KIND_FLOAT) {
    double x, y;
    memcpy(&x, a, 8), memcpy(&y, b, 8);
    return x == y;
  }
  if (type->kind == KIND_COMPLEX) {
    const Type part = {type->name, type->handle, KIND_FLOAT, GROUP_FLOAT};
    return same(a, b, &part, size / 2) &&
           same((const char*)a + size / 2, (const char*)b + size / 2, &part, size / 2);
  }
  return memcmp(a, b, (size_t)size) == 0;
}

static void verify(const char* call, Place p, const Type* type, const Op* op, const unsigned char* got,
                   int size, size_t first, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) {
    unsigned char wanted[16];
    reduce_reference(wanted, type, size, op, p.ranks, first + i, seed);
    if (!same(wanted, got + i * (size_t)size, type, size)) {
      failed("%s on %s (%d ranks) %s %s count %zu: element %zu is wrong", call, p.where, p.ranks,
             type->name, op->name, count, i);
      return;
    }
  }
  for (int i = 0; i < 16; ++i)
    if (got[count * (size_t)size + (size_t)i] != GUARD) {
      failed("%s on %s %s %s count %zu wrote behind the end", call, p.where, type->name, op->name, count);
      return;
    }
}

static void fill_all(unsigned char* into, const Type* type, int size, int rank, size_t count,
                     unsigned seed) {
  for (size_t i = 0; i < count; ++i) fill(into + i * (size_t)size, type, size, rank, i, seed);
}

static void one_allreduce(Place p, const Type* type, const Op* op, size_t count, int in_place,
                          size_t shift) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
  const size_t bytes = count * (size_t)size;
  const unsigned seed = ++g_seed;
  unsigned char* memory = malloc(2 * bytes + 256);
  memset(memory, GUARD, 2 * bytes + 256);
  unsigned char* send = memory + shift;
  unsigned char* recv = memory + bytes + 128 + shift;
  fill_all(in_place ? recv : send, type, size, p.rank, count, seed);
  MPI_OK(MPI_Allreduce(in_place ? MPI_IN_PLACE : send, recv, (int)count, type->handle, op->handle, p.comm));
  verify(in_place ? "MPI_Allreduce in place" : "MPI_Allreduce", p, type, op, recv, size, 0, count, seed);
  free(memory);
}

static void one_reduce_scatter_block(Place p, const Type* type, const Op* op, size_t count, int in_place) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
  const size_t total = count * (size_t)p.ranks;
  const unsigned seed = ++g_seed;
  unsigned char* send = malloc(total * (size_t)size + 64);
  unsigned char* recv = malloc(total * (size_t)size + 64);
  memset(recv, GUARD, total * (size_t)size + 64);
  fill_all(in_place ? recv : send, type, size, p.rank, total, seed);
  MPI_OK(MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : send, recv, (int)count, type->handle,
                                  op->handle, p.comm));
  if (in_place)
    memset(recv + count * (size_t)size, GUARD, 16); /* what lies behind the block is not defined */
  verify("MPI_Reduce_scatter_block", p, type, op, recv, size, count * (size_t)p.rank, count, seed);
  free(send), free(recv);
}

static void one_reduce_scatter(Place p, const Type* type, const Op* op, const int* counts, int in_place) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
  size_t total = 0, first = 0;
  for (int r = 0; r < p.ranks; ++r) {
    if (r < p.rank) first += (size_t)counts[r];
    total += (size_t)counts[r];
  }
  const unsigned seed = ++g_seed;
  unsigned char* send = malloc(total * (size_t)size + 64);
  unsigned char* recv = malloc(total * (size_t)size + 64);
  memset(recv, GUARD, total * (size_t)size + 64);
  fill_all(in_place ? recv : send, type, size, p.rank, total, seed);
  MPI_OK(
      MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : send, recv, counts, type->handle, op->handle, p.comm));
  const size_t own = (size_t)counts[p.rank];
  if (in_place) memset(recv + own * (size_t)size, GUARD, 16);
  verify("MPI_Reduce_scatter", p, type, op, recv, size, first, own, seed);
  free(send), free(recv);
}

/* Sums of numbers that do not add up exactly: close to the wide sum, and the same bits on every rank. */
static void rounding(Place p) {
  enum { COUNT = 3000 };
  double *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
  double* others = malloc((size_t)p.ranks * COUNT * sizeof *others);
  for (int i = 0; i < COUNT; ++i) in[i] = 1.0 / (1 + i + 7 * p.rank) - 1e-3 * i;
  MPI_OK(MPI_Allreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, p.comm));
  for (int i = 0; i < COUNT; ++i) {
    long double wide = 0;
    for (int r = 0; r < p.ranks; ++r) wide += 1.0 / (1 + i + 7 * r) - 1e-3 * i;
    const long double error = wide - out[i], scale = 1e-14L * (1 + 4 * (long double)p.ranks);
    if (error > scale || error < -scale) {
      failed("MPI_Allreduce on %s: sum %d is off by %Lg", p.where, i, error);
      break;
    }
  }
  MPI_OK(MPI_Gather(out, COUNT, MPI_DOUBLE, others, COUNT, MPI_DOUBLE, 0, p.comm));
  if (p.rank == 0)
    for (int r = 1; r < p.ranks; ++r)
      CHECK(memcmp(others, others + (size_t)r * COUNT, COUNT * sizeof *out) == 0,
            "MPI_Allreduce on %s: rank %d has other bits than rank 0", p.where, r);
  free(in), free(out), free(others);
}

void test_reductions(MPI_Comm comm, const char* where, int thorough) {
  static const size_t few[] = {1, 1001};
  static const size_t many[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 65, 127, 1000, 4099, 16384};
  const size_t* counts = thorough ? many : few;
  const int count_count = thorough ? (int)(sizeof many / sizeof *many) : (int)(sizeof few / sizeof *few);
  Place p = {comm, where, 0, 0};
  g_seed = 1; /* ranks may have been in different communicators before */
  MPI_Comm_rank(comm, &p.rank);
  MPI_Comm_size(comm, &p.ranks);
  int types = 0, ops = 0;
  const Type* type = all_types(&types);
  const Op* op = all_ops(&ops);
  int* blocks = malloc((size_t)p.ranks * sizeof *blocks);
  for (int t = 0; t < types; ++t)
    for (int o = 0; o < ops; ++o) {
      if (!op_applies(&op[o], &type[t]) || (g_skip_known && known_wrong(&op[o], &type[t]))) continue;
      for (int c = 0; c < count_count; ++c) {
        one_allreduce(p, &type[t], &op[o], counts[c], 0, 0);
        one_allreduce(p, &type[t], &op[o], counts[c], 1, (size_t)c);
      }
      const size_t block = thorough ? 129 : 5;
      one_reduce_scatter_block(p, &type[t], &op[o], block, 0);
      one_reduce_scatter_block(p, &type[t], &op[o], block + 1, 1);
      for (int r = 0; r < p.ranks; ++r) blocks[r] = r % 3 == 1 ? 0 : 7 * r + (int)block;
      one_reduce_scatter(p, &type[t], &op[o], blocks, 0);
      one_reduce_scatter(p, &type[t], &op[o], blocks, 1);
    }
  free(blocks);
  rounding(p);
  if (thorough)
    for (size_t count = 65536; count <= 1 << 20;
         count = count * 4 + 3) { /* large messages of the usual types */
      for (int t = 0; t < types; ++t) {
        if (type[t].handle != MPI_FLOAT && type[t].handle != MPI_DOUBLE && type[t].handle != MPI_INT)
          continue;
        one_allreduce(p, &type[t], &op[OP_SUM], count, 0, 0);
        one_allreduce(p, &type[t], &op[OP_MAX], count, 1, 0);
        one_reduce_scatter_block(p, &type[t], &op[OP_SUM], count / (size_t)p.ranks + 1, 1);
      }
    }
}
