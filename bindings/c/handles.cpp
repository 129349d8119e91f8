#include "handles.hpp"

#include <vector>

namespace tamaki::c {
namespace {

// An operation's handle: 1 | generation (18 bits) | index (12 bits), below the sign bit.
constexpr int kIndexBits = 12;
constexpr tmkOp_t kUserOp = 1 << 30;
constexpr std::uint32_t kGenerations = 1u << (30 - kIndexBits);
static_assert(OpTable::kBlock * OpTable::kBlocks == 1 << kIndexBits);

std::uint32_t next_generation() {
  static std::atomic<std::uint32_t> counter{0};  // only has to differ between handles: relaxed
  return counter.fetch_add(1, std::memory_order_relaxed) % kGenerations;
}

/// Handles that ended, for reuse. Deliberately never destroyed: a handle may be used after static
/// destructors ran.
struct Retired {
  std::mutex mutex;
  std::vector<tmkComm*> all;   // keeps every handle reachable
  std::vector<tmkComm*> free;  // subset of `all`
};
Retired& retired() {
  static Retired* const instance = new Retired;
  return *instance;
}

}  // namespace

OpEntry* OpTable::entry(tmkOp_t op) const {
  if ((op & kUserOp) == 0 || op < 0) return nullptr;
  const int index = op & ((1 << kIndexBits) - 1);
  OpEntry* block =
      blocks_[static_cast<std::size_t>(index / kBlock)].load(std::memory_order_acquire);  // with add()
  return block == nullptr ? nullptr : block + index % kBlock;
}

const OpContext* OpTable::find(tmkOp_t op) const {
  const OpEntry* e = entry(op);
  return e != nullptr && e->handle.load(std::memory_order_acquire) == op ? &e->context : nullptr;
}

Result<tmkOp_t> OpTable::add(const OpContext& context) {
  const std::lock_guard lock(mutex_);
  for (int b = 0; b < kBlocks; ++b) {
    auto& slot = blocks_[static_cast<std::size_t>(b)];
    OpEntry* block = slot.load(std::memory_order_relaxed);
    if (block == nullptr) {
      block = new OpEntry[kBlock];
      slot.store(block, std::memory_order_release);
    }
    for (int i = 0; i < kBlock; ++i) {
      if (block[i].handle.load(std::memory_order_relaxed) != 0) continue;
      const tmkOp_t op = kUserOp | static_cast<tmkOp_t>(next_generation() << kIndexBits) | (b * kBlock + i);
      block[i].context = context;
      block[i].handle.store(op, std::memory_order_release);
      ++live_;
      return op;
    }
  }
  return fail(Code::out_of_memory,
              "all " + std::to_string(kBlock * kBlocks) + " operations of the communicator exist");
}

bool OpTable::remove(tmkOp_t op) {
  const std::lock_guard lock(mutex_);
  OpEntry* e = entry(op);
  if (e == nullptr || e->handle.load(std::memory_order_relaxed) != op) return false;
  e->handle.store(0, std::memory_order_release);
  --live_;
  return true;
}

void OpTable::clear() {
  const std::lock_guard lock(mutex_);
  for (auto& slot : blocks_)
    if (OpEntry* block = slot.load(std::memory_order_relaxed); block != nullptr)
      for (int i = 0; i < kBlock; ++i) block[i].handle.store(0, std::memory_order_release);
  live_ = 0;
}

tmkComm_t adopt(std::unique_ptr<Communicator> communicator) {
  tmkComm* comm = nullptr;
  {
    Retired& pool = retired();
    const std::lock_guard lock(pool.mutex);
    if (pool.free.empty()) {
      auto fresh = std::make_unique<tmkComm>();
      pool.all.reserve(pool.all.size() + 1);
      pool.free.reserve(pool.all.size() + 1);  // so that retire() cannot fail
      pool.all.push_back(fresh.get());
      comm = fresh.release();
    } else {
      comm = pool.free.back();
      pool.free.pop_back();
    }
  }
  comm->rank = communicator->rank();
  comm->ranks = communicator->ranks();
  const std::string& name = communicator->config().name;
  comm->name = name.empty() ? std::string() : " \"" + name + "\"";
  comm->last_error.clear();
  comm->impl = std::move(communicator);
  comm->magic.store(kAliveCommunicator, std::memory_order_release);
  return comm;
}

void retire(tmkComm_t comm) {
  comm->magic.store(0, std::memory_order_release);
  comm->impl.reset();
  comm->ops.clear();
  {
    const std::lock_guard lock(comm->mutex);
    comm->free_requests = nullptr;
    for (tmkRequest& request : comm->requests) {
      request.state.store(tmkRequest::kFree, std::memory_order_release);
      request.inner = nullptr;
      request.next = comm->free_requests;
      comm->free_requests = &request;
    }
  }
  Retired& pool = retired();
  const std::lock_guard lock(pool.mutex);
  pool.free.push_back(comm);
}

tmkRequest* take_request(tmkComm& comm) {
  const std::lock_guard lock(comm.mutex);
  tmkRequest* request = comm.free_requests;
  if (request == nullptr) {
    request = &comm.requests.emplace_back();
    request->comm = &comm;
  } else {
    comm.free_requests = request->next;
  }
  request->next = nullptr;
  request->inner = nullptr;
  request->state.store(tmkRequest::kRecorded, std::memory_order_relaxed);
  return request;
}

void free_request(tmkRequest& request) {
  tmkComm& comm = *request.comm;
  if (request.inner != nullptr) comm.impl->release(request.inner);
  request.inner = nullptr;
  request.failure = {};
  const std::lock_guard lock(comm.mutex);
  request.state.store(tmkRequest::kFree, std::memory_order_relaxed);
  request.next = comm.free_requests;
  comm.free_requests = &request;
}

}  // namespace tamaki::c
