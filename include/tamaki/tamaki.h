/* Tamaki: topology-aware collective communication. Public C interface (C99).
 *
 * Conventions
 * - Every function returns tmkResult_t; tmkGetLastError(comm) explains the last failure in words.
 * - `count` is in elements of `type`, never in bytes. Buffers may have any byte alignment.
 * - Collectives are called by all ranks of a communicator, in the same order. A communicator serves
 *   one call at a time; concurrent calls from several threads are serialized, never mixed up.
 * - In place: where a function's documentation names an in-place form, passing exactly those
 *   pointers (or TMK_IN_PLACE as the send buffer) selects it. Other overlaps are an error of the caller.
 * - Buffers are host memory.
 * - A communicator belongs to the process that made it: a forked child gets tmkInvalidUsage from its operations.
 * - No function ends, signals or blocks the host process beyond the deadline of the operation.
 */
#ifndef TAMAKI_TAMAKI_H
#define TAMAKI_TAMAKI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TMK_API __attribute__((visibility("default")))
#else
#define TMK_API
#endif

#define TMK_MAJOR 0
#define TMK_MINOR 1
#define TMK_PATCH 0
/** Version as one number: major * 10000 + minor * 100 + patch. */
#define TMK_VERSION (TMK_MAJOR * 10000 + TMK_MINOR * 100 + TMK_PATCH)

#define TMK_UNIQUE_ID_BYTES 128
#define TMK_IN_PLACE ((const void*)-1)
/** Colour of ranks that take part in tmkCommSplit but join no new communicator. */
#define TMK_SPLIT_NOCOLOR (-1)

typedef struct tmkComm* tmkComm_t;
typedef struct tmkRequest* tmkRequest_t;
/** Opaque name of a job; made once by tmkGetUniqueId and given to every rank by the caller's means.
 *  It holds the job's secret: whoever has it can join. */
typedef struct tmkUniqueId {
  char internal[TMK_UNIQUE_ID_BYTES];
} tmkUniqueId;

typedef enum tmkResult {
  tmkSuccess = 0,
  tmkInvalidArgument = 1, /**< an argument is out of its range; nothing was started */
  tmkInvalidUsage = 2,    /**< right arguments at the wrong time, or something this build cannot do */
  tmkSystemError = 3,     /**< the operating system refused; the text has errno and the call */
  tmkOutOfMemory = 4,     /**< memory, shared memory, descriptors or a limit ran out */
  tmkPeerLost = 5,        /**< another rank ended or became unreachable; the text names it */
  tmkTimeout = 6,         /**< the operation's deadline passed; the text names whom it waited for */
  tmkMismatch = 7,        /**< ranks disagree (collective, count, type, op, root or order) */
  tmkAborted = 8,         /**< the communicator was aborted, here or by another rank */
  tmkInProgress = 9,      /**< not an error: the request has not completed yet */
  tmkInternalError = 10   /**< a defect of this library */
} tmkResult_t;

typedef enum tmkDataType {
  tmkInt8 = 0,
  tmkUint8 = 1,
  tmkInt16 = 2,
  tmkUint16 = 3,
  tmkInt32 = 4,
  tmkUint32 = 5,
  tmkInt64 = 6,
  tmkUint64 = 7,
  tmkFloat16 = 8,      /**< IEEE 754 binary16 */
  tmkBfloat16 = 9,     /**< upper half of binary32 */
  tmkFloat32 = 10,
  tmkFloat64 = 11,
  tmkFloat8e4m3 = 12,  /**< OCP FP8 E4M3: no infinities, NaN 0x7f/0xff, largest 448; overflow saturates */
  tmkFloat8e5m2 = 13,  /**< OCP FP8 E5M2: infinities and NaN as in IEEE */
  tmkComplex64 = 14,   /**< two binary32: real, imaginary */
  tmkComplex128 = 15,  /**< two binary64 */
  tmkBytes = 16,       /**< raw bytes: may be moved, not reduced, except bitwise */
  tmkNumTypes = 17
} tmkDataType_t;

/** Predefined operations; tmkOpCreate* return further values of this type.
 *  Sums of f16, bf16 and fp8 accumulate in f32 within a step. Integer overflow wraps.
 *  min and max: NaN wins (IEEE 754-2019 minimum, maximum) as one canonical quiet NaN, -0 < +0.
 *  avg: the sum divided by the number of ranks, integers truncating toward zero.
 *  Logical operations give 0 or 1; one rank alone gets its input back, as in MPI. */
typedef int tmkOp_t;
enum {
  tmkSum = 0,
  tmkProd = 1,
  tmkMin = 2,
  tmkMax = 3,
  tmkAvg = 4,
  tmkBitAnd = 5,
  tmkBitOr = 6,
  tmkBitXor = 7,
  tmkLogicalAnd = 8,
  tmkLogicalOr = 9,
  tmkLogicalXor = 10,
  tmkNumOps = 11
};

/** A user's reduction: inout[i] = in[i] OP inout[i] for i in [0, count); `in` is the operand of the
 *  lower ranks. Must be associative, must not throw, block or call Tamaki. */
typedef void (*tmkReduceFunction)(const void* in, void* inout, size_t count, tmkDataType_t type,
                                  void* context);

/** Exchange of bytes supplied by the caller: every rank gives `bytes` bytes, and `all` receives
 *  ranks * bytes, in rank order. Blocking. Returns 0, or anything else for failure. */
typedef int (*tmkAllgatherFunction)(const void* mine, void* all, size_t bytes, void* context);

/** Settings of one communicator. Initialise with TMK_CONFIG_INIT; fields left at their initial value
 *  take the option's value (`tamaki info --options`). All ranks must pass equal values. */
typedef struct tmkConfig {
  size_t size;               /**< sizeof(tmkConfig_t) of the caller */
  unsigned version;          /**< TMK_VERSION of the caller */
  int timeout_ms;            /**< longest an operation may go without progress, 1..2^31-1; -1:
                                  TAMAKI_TIMEOUT_MS (30000) */
  int reproducible;          /**< 1: same bits across algorithms, lanes, chunking, placement; 0; -1 */
  int progress_thread;       /**< 1: requests advance without test or wait; 0; -1 */
  int check;                 /**< 1: compare the arguments of all ranks before each collective; 0; -1 */
  const char* transports;    /**< comma-separated names in order of preference, e.g. "shm,tcp"; NULL */
  const char* algorithm;     /**< e.g. "ring", or per size: "direct:0-16K,ring/lanes=2:16K-", for the collectives that have it; NULL */
  const char* name;          /**< shown in errors, logs and traces; copied; NULL */
} tmkConfig_t;
#define TMK_CONFIG_INIT {sizeof(tmkConfig_t), TMK_VERSION, -1, -1, -1, -1, NULL, NULL, NULL}

/* ---- The library ------------------------------------------------------------------------------ */
TMK_API tmkResult_t tmkGetVersion(int* version);
/** Short constant English text of a result code. Never NULL. */
TMK_API const char* tmkGetErrorString(tmkResult_t result);
/** What went wrong last, with names and numbers: of this communicator, or with NULL of the calling
 *  thread. Valid until the next failing call of the same thread. Never NULL. */
TMK_API const char* tmkGetLastError(tmkComm_t comm);
TMK_API size_t tmkSizeOf(tmkDataType_t type);

/* ---- Communicators ---------------------------------------------------------------------------- */
TMK_API tmkResult_t tmkGetUniqueId(tmkUniqueId* id);
/** Collective over `ranks` callers. `config` may be NULL. */
TMK_API tmkResult_t tmkCommInitRank(tmkComm_t* comm, int ranks, tmkUniqueId id, int rank,
                                    const tmkConfig_t* config);
/** Rank and size from the environment of `tamaki run`, Open MPI, MPICH/Hydra, Slurm or torchrun;
 *  one rank where none of these is found. */
TMK_API tmkResult_t tmkCommInitEnv(tmkComm_t* comm, const tmkConfig_t* config);
/** Rank and size given, addresses exchanged through the caller's function (e.g. over MPI). */
TMK_API tmkResult_t tmkCommInitCallbacks(tmkComm_t* comm, int ranks, int rank,
                                         tmkAllgatherFunction allgather, void* context,
                                         const tmkConfig_t* config);
/** Collective over `comm`. Ranks of one colour form a communicator, ordered by (key, old rank).
 *  colour: >= 0 or TMK_SPLIT_NOCOLOR (then *newcomm = NULL). What `config` (or NULL) leaves unset is
 *  as in `comm`. */
TMK_API tmkResult_t tmkCommSplit(tmkComm_t comm, int color, int key, tmkComm_t* newcomm,
                                 const tmkConfig_t* config);
TMK_API tmkResult_t tmkCommDup(tmkComm_t comm, tmkComm_t* newcomm);
/** Completes outstanding work, then frees. Local after a failure, never blocks beyond the deadline. */
TMK_API tmkResult_t tmkCommDestroy(tmkComm_t comm);
/** Gives up outstanding work on all ranks; may be called from another thread while one is blocked
 *  inside `comm`. That call returns tmkAborted; the handle is freed by tmkCommDestroy. */
TMK_API tmkResult_t tmkCommAbort(tmkComm_t comm);
/** *error: tmkSuccess, or what made the communicator unusable. */
TMK_API tmkResult_t tmkCommGetAsyncError(tmkComm_t comm, tmkResult_t* error);
TMK_API tmkResult_t tmkCommRank(tmkComm_t comm, int* rank);
TMK_API tmkResult_t tmkCommSize(tmkComm_t comm, int* size);
/** Deadline, in ms (1..2^31-1), of operations that start from now on on this rank: the longest time one may go
 *  without any progress before it fails with tmkTimeout. */
TMK_API tmkResult_t tmkCommSetTimeout(tmkComm_t comm, int timeout_ms);

/* ---- Memory ----------------------------------------------------------------------------------- */
/** `bytes` of zeroed memory, 2 MiB aligned, which ranks on the same host access without staging. */
TMK_API tmkResult_t tmkMemAlloc(void** pointer, size_t bytes);
/** Frees memory of tmkMemAlloc. No operation may be using it. NULL is allowed. */
TMK_API tmkResult_t tmkMemFree(void* pointer);
/** Makes `buffer`, memory that the caller has already, one that needs no staging; it stays allocated until tmkDeregister.
 *  For ranks on this host its whole pages are moved, at the same address, to memory that they can map; the parts of a
 *  page at its two ends are staged. Local. Nobody may write to it during these two calls, no operation may be using it,
 *  and it must not be pinned for a device or network by others before (register it there afterwards). As with
 *  tmkMemAlloc, a forked child shares it instead of getting a copy, and MADV_DONTNEED does not zero it. Memory that
 *  cannot be moved (of a file, read-only, on a stack, too little memory left, whole pages of less than 64 KiB) is accepted
 *  and staged (a line in the log at `info` says why); TAMAKI_REGISTER=record
 *  leaves all as it is. Errors: tmkInvalidArgument if it is not all mapped. */
TMK_API tmkResult_t tmkRegister(tmkComm_t comm, void* buffer, size_t bytes, void** handle);
/** Undoes tmkRegister; the contents stay. Error: tmkInvalidUsage if the buffer was freed before. */
TMK_API tmkResult_t tmkDeregister(tmkComm_t comm, void* handle);

/* ---- Operations ------------------------------------------------------------------------------- */
/** sum over ranks of scalar * x. `scalar` points to one element of `type` (f32 for f16, bf16 and fp8
 *  types is NOT assumed: the scalar has the operation's own type). Read at once. Valid on `comm`. */
TMK_API tmkResult_t tmkOpCreatePreMulSum(tmkOp_t* op, const void* scalar, tmkDataType_t type,
                                         tmkComm_t comm);
/** commutative 0: operands are combined in rank order. */
TMK_API tmkResult_t tmkOpCreate(tmkOp_t* op, tmkReduceFunction function, int commutative,
                                void* context, tmkComm_t comm);
TMK_API tmkResult_t tmkOpDestroy(tmkOp_t op, tmkComm_t comm);

/* ---- Collectives, blocking. Shapes: p ranks, rank r ------------------------------------------- */
/** send[count] -> recv[count] on every rank. In place: send == recv. */
TMK_API tmkResult_t tmkAllreduce(const void* send, void* recv, size_t count, tmkDataType_t type,
                                 tmkOp_t op, tmkComm_t comm);
/** send[count] -> recv[count] on root; recv is ignored elsewhere. In place on root: send == recv. */
TMK_API tmkResult_t tmkReduce(const void* send, void* recv, size_t count, tmkDataType_t type,
                              tmkOp_t op, int root, tmkComm_t comm);
/** root's send[count] -> recv[count] on every rank; send is ignored elsewhere. In place: send == recv. */
TMK_API tmkResult_t tmkBroadcast(const void* send, void* recv, size_t count, tmkDataType_t type,
                                 int root, tmkComm_t comm);
/** send[count] -> recv[p*count], rank order. In place: send == recv + r*count. */
TMK_API tmkResult_t tmkAllgather(const void* send, void* recv, size_t count, tmkDataType_t type,
                                 tmkComm_t comm);
/** send[counts[r]] -> recv[displs[i] .. +counts[i]) for each i. displs NULL: packed.
 *  In place: send == recv + displs[r]. */
TMK_API tmkResult_t tmkAllgatherv(const void* send, void* recv, const size_t* counts,
                                  const size_t* displs, tmkDataType_t type, tmkComm_t comm);
/** send[p*count] -> recv[count]. In place: recv == send + r*count. */
TMK_API tmkResult_t tmkReduceScatter(const void* send, void* recv, size_t count, tmkDataType_t type,
                                     tmkOp_t op, tmkComm_t comm);
/** send[sum(counts)], packed -> recv[counts[r]]. In place: recv == send + sum(counts[0..r)). */
TMK_API tmkResult_t tmkReduceScatterv(const void* send, void* recv, const size_t* counts,
                                      tmkDataType_t type, tmkOp_t op, tmkComm_t comm);
/** send[count] -> recv[p*count] on root. In place on root: send == recv + root*count. */
TMK_API tmkResult_t tmkGather(const void* send, void* recv, size_t count, tmkDataType_t type,
                              int root, tmkComm_t comm);
/** counts and displs are read on root only; `count` is this rank's own. displs NULL: packed.
 *  In place on root: send == recv + displs[root]. */
TMK_API tmkResult_t tmkGatherv(const void* send, size_t count, void* recv, const size_t* counts,
                               const size_t* displs, tmkDataType_t type, int root, tmkComm_t comm);
/** root's send[p*count] -> recv[count]. In place on root: recv == send + root*count. */
TMK_API tmkResult_t tmkScatter(const void* send, void* recv, size_t count, tmkDataType_t type,
                               int root, tmkComm_t comm);
/** counts and displs are read on root only; `count` is this rank's own. displs NULL: packed.
 *  In place on root: recv == send + displs[root]. */
TMK_API tmkResult_t tmkScatterv(const void* send, const size_t* counts, const size_t* displs,
                                void* recv, size_t count, tmkDataType_t type, int root,
                                tmkComm_t comm);
/** send[p*count] -> recv[p*count]; block i of rank r goes to block r of rank i. In place: send == recv. */
TMK_API tmkResult_t tmkAlltoall(const void* send, void* recv, size_t count, tmkDataType_t type,
                                tmkComm_t comm);
/** send_counts[i] of rank r must equal recv_counts[r] of rank i. displs NULL: packed. */
TMK_API tmkResult_t tmkAlltoallv(const void* send, const size_t* send_counts,
                                 const size_t* send_displs, void* recv, const size_t* recv_counts,
                                 const size_t* recv_displs, tmkDataType_t type, tmkComm_t comm);
TMK_API tmkResult_t tmkBarrier(tmkComm_t comm);

/* ---- Point to point, blocking. Messages of one pair of ranks arrive in order ------------------- */
TMK_API tmkResult_t tmkSend(const void* send, size_t count, tmkDataType_t type, int peer,
                            tmkComm_t comm);
TMK_API tmkResult_t tmkRecv(void* recv, size_t count, tmkDataType_t type, int peer, tmkComm_t comm);
/** Both at once; dest and source may differ, and may be this rank. */
TMK_API tmkResult_t tmkSendrecv(const void* send, size_t send_count, int dest, void* recv,
                                size_t recv_count, int source, tmkDataType_t type, tmkComm_t comm);

/* ---- The same, non-blocking: buffers must stay untouched until the request completes ----------- */
TMK_API tmkResult_t tmkIallreduce(const void* send, void* recv, size_t count, tmkDataType_t type,
                                  tmkOp_t op, tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIreduce(const void* send, void* recv, size_t count, tmkDataType_t type,
                               tmkOp_t op, int root, tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIbroadcast(const void* send, void* recv, size_t count, tmkDataType_t type,
                                  int root, tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIallgather(const void* send, void* recv, size_t count, tmkDataType_t type,
                                  tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIallgatherv(const void* send, void* recv, const size_t* counts,
                                   const size_t* displs, tmkDataType_t type, tmkComm_t comm,
                                   tmkRequest_t* request);
TMK_API tmkResult_t tmkIreduceScatter(const void* send, void* recv, size_t count,
                                      tmkDataType_t type, tmkOp_t op, tmkComm_t comm,
                                      tmkRequest_t* request);
TMK_API tmkResult_t tmkIreduceScatterv(const void* send, void* recv, const size_t* counts,
                                       tmkDataType_t type, tmkOp_t op, tmkComm_t comm,
                                       tmkRequest_t* request);
TMK_API tmkResult_t tmkIgather(const void* send, void* recv, size_t count, tmkDataType_t type,
                               int root, tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIgatherv(const void* send, size_t count, void* recv, const size_t* counts,
                                const size_t* displs, tmkDataType_t type, int root, tmkComm_t comm,
                                tmkRequest_t* request);
TMK_API tmkResult_t tmkIscatter(const void* send, void* recv, size_t count, tmkDataType_t type,
                                int root, tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIscatterv(const void* send, const size_t* counts, const size_t* displs,
                                 void* recv, size_t count, tmkDataType_t type, int root,
                                 tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIalltoall(const void* send, void* recv, size_t count, tmkDataType_t type,
                                 tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIalltoallv(const void* send, const size_t* send_counts,
                                  const size_t* send_displs, void* recv, const size_t* recv_counts,
                                  const size_t* recv_displs, tmkDataType_t type, tmkComm_t comm,
                                  tmkRequest_t* request);
TMK_API tmkResult_t tmkIbarrier(tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIsend(const void* send, size_t count, tmkDataType_t type, int peer,
                             tmkComm_t comm, tmkRequest_t* request);
TMK_API tmkResult_t tmkIrecv(void* recv, size_t count, tmkDataType_t type, int peer, tmkComm_t comm,
                             tmkRequest_t* request);

/** *done = 1 and the request is freed (*request = NULL), or *done = 0. Advances outstanding work.
 *  Returns what the operation failed with, if it did; the request is then freed too. */
TMK_API tmkResult_t tmkTest(tmkRequest_t* request, int* done);
/** Blocks until completion; frees the request, also on failure. NULL request: success at once. */
TMK_API tmkResult_t tmkWait(tmkRequest_t* request);
/** Blocks until one of `count` requests completes; *index = which one (-1: all were NULL). */
TMK_API tmkResult_t tmkWaitAny(int count, tmkRequest_t* requests, int* index);
TMK_API tmkResult_t tmkWaitAll(int count, tmkRequest_t* requests);

/** Calls between start and end of the calling thread are launched together at the outermost end, all
 *  or none; sends and receives among them make progress side by side. Blocking calls inside a group
 *  return at once and complete in tmkGroupEnd; requests can be waited for from then on. Nesting is
 *  allowed. A call in error makes the whole group launch nothing. */
TMK_API tmkResult_t tmkGroupStart(void);
TMK_API tmkResult_t tmkGroupEnd(void);

#ifdef __cplusplus
}
#endif
#endif
