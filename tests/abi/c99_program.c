/* A strict C99 program that links libtamaki.so alone: every function of the header exists there, and one
 * rank works. */
#include <stdio.h>
#include <string.h>
#include <tamaki/tamaki.h>

typedef void (*Function)(void);
static const Function functions[] = {
    (Function)tmkGetLastError,
    (Function)tmkGetVersion,
    (Function)tmkGetErrorString,
    (Function)tmkSizeOf,
    (Function)tmkGetUniqueId,
    (Function)tmkCommInitRank,
    (Function)tmkCommInitEnv,
    (Function)tmkCommInitCallbacks,
    (Function)tmkCommSplit,
    (Function)tmkCommDup,
    (Function)tmkCommDestroy,
    (Function)tmkCommAbort,
    (Function)tmkCommGetAsyncError,
    (Function)tmkCommRank,
    (Function)tmkCommSize,
    (Function)tmkCommSetTimeout,
    (Function)tmkMemAlloc,
    (Function)tmkMemFree,
    (Function)tmkRegister,
    (Function)tmkDeregister,
    (Function)tmkOpCreatePreMulSum,
    (Function)tmkOpCreate,
    (Function)tmkOpDestroy,
    (Function)tmkAllreduce,
    (Function)tmkReduce,
    (Function)tmkBroadcast,
    (Function)tmkAllgather,
    (Function)tmkAllgatherv,
    (Function)tmkReduceScatter,
    (Function)tmkReduceScatterv,
    (Function)tmkGather,
    (Function)tmkGatherv,
    (Function)tmkScatter,
    (Function)tmkScatterv,
    (Function)tmkAlltoall,
    (Function)tmkAlltoallv,
    (Function)tmkBarrier,
    (Function)tmkSend,
    (Function)tmkRecv,
    (Function)tmkSendrecv,
    (Function)tmkIallreduce,
    (Function)tmkIreduce,
    (Function)tmkIbroadcast,
    (Function)tmkIallgather,
    (Function)tmkIallgatherv,
    (Function)tmkIreduceScatter,
    (Function)tmkIreduceScatterv,
    (Function)tmkIgather,
    (Function)tmkIgatherv,
    (Function)tmkIscatter,
    (Function)tmkIscatterv,
    (Function)tmkIalltoall,
    (Function)tmkIalltoallv,
    (Function)tmkIbarrier,
    (Function)tmkIsend,
    (Function)tmkIrecv,
    (Function)tmkTest,
    (Function)tmkWait,
    (Function)tmkWaitAny,
    (Function)tmkWaitAll,
    (Function)tmkGroupStart,
    (Function)tmkGroupEnd,
};

static int allgather(const void* mine, void* all, size_t bytes, void* context) {
  memcpy(all, mine, bytes);
  ++*(int*)context;
  return 0;
}

/* Keeps the later operand. */
static void latest(const void* in, void* inout, size_t count, tmkDataType_t type, void* context) {
  (void)in, (void)inout, (void)count, (void)type, (void)context;
}

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, tmkGetLastError(NULL)); \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

static int use(tmkComm_t comm) {
  const float send[4] = {1, 2, 3, 4};
  float recv[4] = {0};
  const size_t counts[1] = {4};
  const float two = 2;
  tmkOp_t op = -1;
  tmkRequest_t requests[2] = {NULL, NULL};
  int index = 0, done = 0;
  void *memory = NULL, *handle = NULL;

  CHECK(tmkAllreduce(send, recv, 4, tmkFloat32, tmkSum, comm) == tmkSuccess && recv[3] == 4);
  CHECK(tmkAllreduce(TMK_IN_PLACE, recv, 4, tmkFloat32, tmkAvg, comm) == tmkSuccess && recv[0] == 1);
  CHECK(tmkOpCreatePreMulSum(&op, &two, tmkFloat32, comm) == tmkSuccess);
  CHECK(tmkReduceScatter(send, recv, 4, tmkFloat32, op, comm) == tmkSuccess && recv[3] == 8);
  CHECK(tmkOpDestroy(op, comm) == tmkSuccess);
  CHECK(tmkOpCreate(&op, latest, 0, NULL, comm) == tmkSuccess);
  CHECK(tmkReduce(send, recv, 4, tmkFloat32, op, 0, comm) == tmkSuccess && recv[1] == 2);
  CHECK(tmkOpDestroy(op, comm) == tmkSuccess);
  CHECK(tmkAllgatherv(send, recv, counts, NULL, tmkFloat32, comm) == tmkSuccess && recv[2] == 3);
  CHECK(tmkBarrier(comm) == tmkSuccess);

  CHECK(tmkGroupStart() == tmkSuccess);
  CHECK(tmkIsend(send + 1, 2, tmkFloat32, 0, comm, &requests[0]) == tmkSuccess);
  CHECK(tmkIrecv(recv, 2, tmkFloat32, 0, comm, &requests[1]) == tmkSuccess);
  CHECK(tmkGroupEnd() == tmkSuccess);
  CHECK(tmkWaitAny(2, requests, &index) == tmkSuccess && index >= 0);
  CHECK(tmkWaitAll(2, requests) == tmkSuccess && recv[0] == 2 && recv[1] == 3);
  CHECK(tmkTest(&requests[0], &done) == tmkSuccess && done == 1);

  CHECK(tmkMemAlloc(&memory, 1 << 20) == tmkSuccess);
  CHECK(((unsigned char*)memory)[(1 << 20) - 1] == 0);
  CHECK(tmkRegister(comm, memory, 1 << 20, &handle) == tmkSuccess);
  CHECK(tmkDeregister(comm, handle) == tmkSuccess);
  CHECK(tmkMemFree(memory) == tmkSuccess);
  CHECK(tmkAllreduce(send, recv, 4, tmkFloat32, 99, comm) == tmkInvalidArgument);
  CHECK(strstr(tmkGetLastError(comm), "op=99") != NULL);
  return 0;
}

int main(void) {
  size_t i;
  int calls = 0, rank = -1, size = -1;
  tmkComm_t comm = NULL, copy = NULL;
  tmkConfig_t config = TMK_CONFIG_INIT;
  for (i = 0; i < sizeof functions / sizeof functions[0]; ++i) CHECK(functions[i] != NULL);
  config.timeout_ms = 20000;
  config.name = "c99";
  CHECK(tmkCommInitCallbacks(&comm, 1, 0, allgather, &calls, &config) == tmkSuccess);
  CHECK(tmkCommRank(comm, &rank) == tmkSuccess && rank == 0);
  CHECK(tmkCommSize(comm, &size) == tmkSuccess && size == 1);
  CHECK(use(comm) == 0);
  CHECK(tmkCommDup(comm, &copy) == tmkSuccess);
  CHECK(tmkCommDestroy(comm) == tmkSuccess);
  CHECK(use(copy) == 0);
  CHECK(tmkCommDestroy(copy) == tmkSuccess);
  CHECK(tmkCommDestroy(copy) == tmkInvalidArgument);
  printf("%d functions, one rank\n", (int)(sizeof functions / sizeof functions[0]));
  return 0;
}
