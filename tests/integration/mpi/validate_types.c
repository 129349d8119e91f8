/* Types, operations, inputs and the reference. */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"

static Type g_types[80];
static int g_type_count;
static Op g_ops[OP_COUNT];

static void add(const char* name, MPI_Datatype handle, Kind kind, Group group) {
  if (handle == MPI_DATATYPE_NULL) return;
  g_types[g_type_count++] = (Type){name, handle, kind, group};
}
#define ADD(name, kind, group) add(#name, name, kind, group)

const Type* all_types(int* count) {
  if (g_type_count == 0) {
    ADD(MPI_SIGNED_CHAR, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UNSIGNED_CHAR, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_SHORT, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UNSIGNED_SHORT, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INT, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UNSIGNED, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_LONG, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UNSIGNED_LONG, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_LONG_LONG, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UNSIGNED_LONG_LONG, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INT8_T, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UINT8_T, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INT16_T, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UINT16_T, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INT32_T, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UINT32_T, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INT64_T, KIND_SIGNED, GROUP_C_INT);
    ADD(MPI_UINT64_T, KIND_UNSIGNED, GROUP_C_INT);
    ADD(MPI_INTEGER, KIND_SIGNED, GROUP_F_INT);
    ADD(MPI_INTEGER1, KIND_SIGNED, GROUP_F_INT);
    ADD(MPI_INTEGER2, KIND_SIGNED, GROUP_F_INT);
    ADD(MPI_INTEGER4, KIND_SIGNED, GROUP_F_INT);
    ADD(MPI_INTEGER8, KIND_SIGNED, GROUP_F_INT);
    ADD(MPI_AINT, KIND_SIGNED, GROUP_MULTI);
    ADD(MPI_OFFSET, KIND_SIGNED, GROUP_MULTI);
    ADD(MPI_COUNT, KIND_SIGNED, GROUP_MULTI);
    ADD(MPI_FLOAT, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_DOUBLE, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_REAL, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_REAL4, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_REAL8, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_DOUBLE_PRECISION, KIND_FLOAT, GROUP_FLOAT);
    ADD(MPI_C_FLOAT_COMPLEX, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_C_DOUBLE_COMPLEX, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_COMPLEX, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_DOUBLE_COMPLEX, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_COMPLEX8, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_COMPLEX16, KIND_COMPLEX, GROUP_COMPLEX);
    ADD(MPI_LOGICAL, KIND_LOGICAL, GROUP_LOGICAL);
    ADD(MPI_C_BOOL, KIND_LOGICAL, GROUP_LOGICAL);
    ADD(MPI_CXX_BOOL, KIND_LOGICAL, GROUP_LOGICAL);
    ADD(MPI_BYTE, KIND_UNSIGNED, GROUP_BYTE);
  }
  *count = g_type_count;
  return g_types;
}

const Op* all_ops(int* count) {
  const Op ops[OP_COUNT] = {{"MPI_SUM", MPI_SUM, OP_SUM},    {"MPI_PROD", MPI_PROD, OP_PROD},
                            {"MPI_MIN", MPI_MIN, OP_MIN},    {"MPI_MAX", MPI_MAX, OP_MAX},
                            {"MPI_LAND", MPI_LAND, OP_LAND}, {"MPI_LOR", MPI_LOR, OP_LOR},
                            {"MPI_LXOR", MPI_LXOR, OP_LXOR}, {"MPI_BAND", MPI_BAND, OP_BAND},
                            {"MPI_BOR", MPI_BOR, OP_BOR},    {"MPI_BXOR", MPI_BXOR, OP_BXOR}};
  memcpy(g_ops, ops, sizeof ops);
  *count = OP_COUNT;
  return g_ops;
}

int op_applies(const Op* op, const Type* type) { /* MPI 4.0, 6.9.2 */
  switch (op->kind) {
    case OP_SUM:
    case OP_PROD:
      return type->group != GROUP_LOGICAL && type->group != GROUP_BYTE;
    case OP_MIN:
    case OP_MAX:
      return type->group <= GROUP_FLOAT;
    case OP_LAND:
    case OP_LOR:
    case OP_LXOR:
      return type->group == GROUP_C_INT || type->group == GROUP_LOGICAL;
    default:
      return type->group <= GROUP_MULTI || type->group == GROUP_BYTE;
  }
}

int known_wrong(const Op* op, const Type* type) {
  int size = 0;
  MPI_Type_size(type->handle, &size);
#ifdef OPEN_MPI
  if (op->kind == OP_SUM && size <= 2) return 1; /* saturates */
  if ((op->kind == OP_MIN || op->kind == OP_MAX) &&
      (type->handle == MPI_UNSIGNED_LONG || type->handle == MPI_OFFSET))
    return 1;
#endif
  return (op->kind == OP_MIN || op->kind == OP_MAX) && type->kind == KIND_UNSIGNED;
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27, x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static void put_integer(void* element, uint64_t value, int size) {
  memcpy(element, &value, (size_t)size);
} /* LE */
static uint64_t get_integer(const void* element, int size) {
  uint64_t value = 0;
  memcpy(&value, element, (size_t)size);
  return value;
}

/* Floats get small integers, so that every order of summation gives the same bits. Integers use all bits.
 */
void fill(void* element, const Type* type, int size, int rank, size_t index, unsigned seed) {
  const uint64_t random =
      mix(mix(index * 0x9e3779b97f4a7c15u + seed) + (uint64_t)rank * 0xd1342543de82ef95u);
  const double small = (double)(int)(random % 9) - 4.0;
  const double other = (double)(int)(random / 9 % 5) - 2.0;
  switch (type->kind) {
    case KIND_SIGNED:
    case KIND_UNSIGNED:
      put_integer(element, random % 7 == 0 ? 0 : random, size);
      break;
    case KIND_LOGICAL:
      put_integer(element, random % 3 == 0, size);
      break;
    case KIND_FLOAT:
      if (size == 4)
        memcpy(element, &(float){(float)small}, 4);
      else
        memcpy(element, &small, 8);
      break;
    case KIND_COMPLEX:
      if (size == 8)
        memcpy(element, (float[]){(float)small, (float)other}, 8);
      else
        memcpy(element, (double[]){small, other}, 16);
      break;
  }
}

static int64_t sign_extend(uint64_t value, int size) {
  const int shift = 64 - 8 * size;
  return (int64_t)(value << shift) >> shift;
}

static uint64_t combine_integers(OpKind op, uint64_t a, uint64_t b, int is_signed, int size) {
  const int less = is_signed ? sign_extend(a, size) < sign_extend(b, size) : a < b;
  switch (op) {
    case OP_SUM:
      return a + b;
    case OP_PROD:
      return a * b;
    case OP_MIN:
      return less ? a : b;
    case OP_MAX:
      return less ? b : a;
    case OP_LAND:
      return a != 0 && b != 0;
    case OP_LOR:
      return a != 0 || b != 0;
    case OP_LXOR:
      return (a != 0) != (b != 0);
    case OP_BAND:
      return a & b;
    case OP_BOR:
      return a | b;
    default:
      return a ^ b;
  }
}

static double combine_doubles(OpKind op, double a, double b) {
  switch (op) {
    case OP_SUM:
      return a + b;
    case OP_PROD:
      return a * b;
    case OP_MIN:
      return a < b ? a : b;
    default:
      return a < b ? b : a;
  }
}

void reduce_reference(void* into, const Type* type, int size, const Op* op, int ranks, size_t index,
                      unsigned seed) {
  unsigned char element[16];
  fill(into, type, size, 0, index, seed);
  for (int r = 1; r < ranks; ++r) {
    fill(element, type, size, r, index, seed);
    if (type->kind == KIND_FLOAT && size == 4) {
      float a, b;
      memcpy(&a, into, 4), memcpy(&b, element, 4);
      a = (float)combine_doubles(op->kind, a, b);
      memcpy(into, &a, 4);
    } else if (type->kind == KIND_FLOAT) {
      double a, b;
      memcpy(&a, into, 8), memcpy(&b, element, 8);
      a = combine_doubles(op->kind, a, b);
      memcpy(into, &a, 8);
    } else if (type->kind == KIND_COMPLEX && size == 8) {
      float complex a, b;
      memcpy(&a, into, 8), memcpy(&b, element, 8);
      a = op->kind == OP_SUM ? a + b : a * b;
      memcpy(into, &a, 8);
    } else if (type->kind == KIND_COMPLEX) {
      double complex a, b;
      memcpy(&a, into, 16), memcpy(&b, element, 16);
      a = op->kind == OP_SUM ? a + b : a * b;
      memcpy(into, &a, 16);
    } else {
      const uint64_t a = get_integer(into, size), b = get_integer(element, size);
      put_integer(into, combine_integers(op->kind, a, b, type->kind == KIND_SIGNED, size), size);
    }
  }
}
