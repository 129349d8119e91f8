/* The validator: an MPI program that knows nothing of Tamaki and checks what MPI must deliver. Inputs are a
 * function of (rank, index, case), so that each rank computes every result with a plain loop over all
 * ranks' inputs. */
#ifndef VALIDATE_H
#define VALIDATE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT, KIND_COMPLEX, KIND_LOGICAL } Kind;
typedef enum {
  GROUP_C_INT,
  GROUP_F_INT,
  GROUP_MULTI,
  GROUP_FLOAT,
  GROUP_COMPLEX,
  GROUP_LOGICAL,
  GROUP_BYTE
} Group;
typedef struct {
  const char* name;
  MPI_Datatype handle;
  Kind kind;
  Group group;
} Type;
typedef enum {
  OP_SUM,
  OP_PROD,
  OP_MIN,
  OP_MAX,
  OP_LAND,
  OP_LOR,
  OP_LXOR,
  OP_BAND,
  OP_BOR,
  OP_BXOR,
  OP_COUNT
} OpKind;
typedef struct {
  const char* name;
  MPI_Op handle;
  OpKind kind;
} Op;

const Type* all_types(int* count);
const Op* all_ops(int* count);
int op_applies(const Op* op, const Type* type);
/* 1: the MPI library of this distribution computes this wrongly by itself. */
int known_wrong(const Op* op, const Type* type);

/* Element `index` of the input of `rank` (of the communicator) in case `seed`, as the type has it. */
void fill(void* element, const Type* type, int size, int rank, size_t index, unsigned seed);
/* into = the reduction of element `index` over ranks 0..ranks-1. */
void reduce_reference(void* into, const Type* type, int size, const Op* op, int ranks, size_t index,
                      unsigned seed);
/* Bytes that belong to no result. */
#define GUARD 0xA5

extern int g_failures;
extern int g_world_rank;
extern int g_skip_known; /* the run goes to MPI itself: leave out what is known to be wrong there */
void failed(const char* format, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(condition, ...)              \
  do {                                     \
    if (!(condition)) failed(__VA_ARGS__); \
  } while (0)
#define MPI_OK(call)                                                                             \
  do {                                                                                           \
    int code_ = (call);                                                                          \
    if (code_ != MPI_SUCCESS) failed("%s:%d: %s returned %d", __FILE__, __LINE__, #call, code_); \
  } while (0)

void test_reductions(MPI_Comm comm, const char* where, int thorough);
void test_movement(MPI_Comm comm, const char* where);
void test_derived(MPI_Comm comm, const char* where);
void test_passed_through(MPI_Comm comm);
void test_errors(void);
void test_intercommunicator(void);
void test_progress(void);
void test_lifecycle(int rounds);
void test_threads(int threads, int rounds);

#endif
