// Version, texts, memory and operations.
#include <cstring>

#include "arguments.hpp"
#include "guard.hpp"

using namespace tamaki;
using namespace tamaki::c;

tmkResult_t tmkGetVersion(int* version) {
  return guard("tmkGetVersion", [&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = TMK_VERSION;
    return {};
  });
}

const char* tmkGetErrorString(tmkResult_t result) {
  switch (result) {
    case tmkSuccess:
      return "success";
    case tmkInvalidArgument:
      return "invalid argument";
    case tmkInvalidUsage:
      return "invalid usage";
    case tmkSystemError:
      return "system error";
    case tmkOutOfMemory:
      return "out of memory or another resource";
    case tmkPeerLost:
      return "another rank was lost";
    case tmkTimeout:
      return "deadline passed";
    case tmkMismatch:
      return "ranks disagree about the operation";
    case tmkAborted:
      return "communicator aborted";
    case tmkInProgress:
      return "in progress";
    case tmkInternalError:
      return "internal error";
  }
  return "unknown result code";
}

const char* tmkGetLastError(tmkComm_t comm) { return last_error(comm); }

size_t tmkSizeOf(tmkDataType_t type) {
  const bool known = static_cast<unsigned>(type) < static_cast<unsigned>(tmkNumTypes);
  return known ? size_of(static_cast<DataType>(type)) : 0;
}

tmkResult_t tmkMemAlloc(void** pointer, size_t bytes) {
  return guard("tmkMemAlloc", [&]() -> Status {
    if (pointer == nullptr) return null_argument("pointer");
    *pointer = nullptr;
    if (bytes == 0) return {};
    if (bytes > PTRDIFF_MAX)
      return fail(Code::invalid_argument,
                  "bytes=" + std::to_string(bytes) + " is more than the address space holds");
    Result<void*> memory = allocate_shared(bytes);
    if (!memory) return pass(std::move(memory));
    *pointer = *memory;
    return {};
  });
}

tmkResult_t tmkMemFree(void* pointer) {
  return guard("tmkMemFree", [&]() -> Status {
    if (pointer == nullptr) return {};
    return free_shared(pointer);
  });
}

tmkResult_t tmkRegister(tmkComm_t comm, void* buffer, size_t bytes, void** handle) {
  return guard("tmkRegister", comm, [&](tmkComm& c) -> Status {
    if (handle == nullptr) return null_argument("handle");
    *handle = nullptr;
    if (buffer == nullptr) return null_argument("buffer");
    if (bytes == 0 || bytes > PTRDIFF_MAX)
      return fail(Code::invalid_argument,
                  "bytes=" + std::to_string(bytes) + " is not in 1.." + std::to_string(PTRDIFF_MAX));
    Result<void*> made = c.impl->register_memory(buffer, bytes);
    if (!made) return pass(std::move(made));
    *handle = *made;
    return {};
  });
}

tmkResult_t tmkDeregister(tmkComm_t comm, void* handle) {
  return guard("tmkDeregister", comm, [&](tmkComm& c) -> Status {
    if (handle == nullptr) return null_argument("handle");
    return c.impl->deregister_memory(handle);
  });
}

tmkResult_t tmkOpCreatePreMulSum(tmkOp_t* op, const void* scalar, tmkDataType_t type, tmkComm_t comm) {
  return guard("tmkOpCreatePreMulSum", comm, [&](tmkComm& c) -> Status {
    if (op == nullptr) return null_argument("op");
    if (scalar == nullptr) return null_argument("scalar");
    TMK_TRY(check_type(type));
    OpContext context;
    context.op = ReduceOp::pre_mul_sum;
    context.type = static_cast<DataType>(type);
    if (!is_defined(context.op, context.type))
      return fail(Code::invalid_argument,
                  "a pre-multiplied sum is not defined for type " + std::string(name_of(context.type)));
    std::memcpy(context.scalar, scalar, size_of(context.type));
    Result<tmkOp_t> made = c.ops.add(context);
    if (!made) return pass(std::move(made));
    *op = *made;
    return {};
  });
}

tmkResult_t tmkOpCreate(tmkOp_t* op, tmkReduceFunction function, int commutative, void* context,
                        tmkComm_t comm) {
  return guard("tmkOpCreate", comm, [&](tmkComm& c) -> Status {
    if (op == nullptr) return null_argument("op");
    if (function == nullptr) return null_argument("function");
    if (commutative != 0 && commutative != 1)
      return fail(Code::invalid_argument,
                  "commutative=" + std::to_string(commutative) + " is neither 0 nor 1");
    OpContext made;
    made.op = ReduceOp::user;
    // They differ in tmkDataType_t against int only, which is passed alike.
    static_assert(sizeof(tmkDataType_t) == sizeof(int));
    made.user = reinterpret_cast<UserReduceFunction>(function);
    made.user_context = context;
    made.commutative = commutative == 1;
    Result<tmkOp_t> handle = c.ops.add(made);
    if (!handle) return pass(std::move(handle));
    *op = *handle;
    return {};
  });
}

tmkResult_t tmkOpDestroy(tmkOp_t op, tmkComm_t comm) {
  return guard("tmkOpDestroy", comm, [&](tmkComm& c) -> Status {
    if (op >= 0 && op < tmkNumOps)
      return fail(Code::invalid_argument, "op=" + std::to_string(op) + " is predefined");
    if (!c.ops.remove(op))
      return fail(Code::invalid_argument,
                  "op=" + std::to_string(op) + " is not an operation of this communicator");
    return {};
  });
}
