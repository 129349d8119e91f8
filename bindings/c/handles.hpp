#pragma once
// What stands behind the handles of the C interface. Their memory is never given back to the allocator but
// reused, so that a handle used after its end is recognised by its state word instead of reading freed
// memory.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "communicator/communicator.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::c {

inline constexpr std::uint32_t kAliveCommunicator = 0x746d6b43;  // "tmkC"

/// A user's operation (pre-multiplied sum or function) while it exists.
struct OpEntry {
  std::atomic<tmkOp_t> handle{0};  // 0: free. Published with release after `context`; read with acquire
  OpContext context;
};

/// The operations created on one communicator. Lookup takes no lock; creation and destruction do. A handle
/// carries a generation that no other live communicator uses, so that one of a destroyed operation or of
/// another communicator is refused.
class OpTable {
 public:
  static constexpr int kBlock = 64, kBlocks = 64;  // at most 4,096 operations at a time

  Result<tmkOp_t> add(const OpContext& context);
  /// False if `op` is not an operation of this table.
  bool remove(tmkOp_t op);
  /// Null if `op` is not an operation of this table.
  const OpContext* find(tmkOp_t op) const;
  void clear();
  int size() const { return live_; }

 private:
  OpEntry* entry(tmkOp_t op) const;

  std::array<std::atomic<OpEntry*>, kBlocks> blocks_{};  // a block is kept once made
  std::mutex mutex_;                                     // of add, remove, clear
  int live_ = 0;
};

}  // namespace tamaki::c

/// A request of the C interface.
struct tmkRequest {
  enum State : std::uint32_t {
    kFree = 0,
    kRecorded = 0x746d6b52,  // in an open group: not started yet
    kActive = 0x746d6b41,    // `inner` is set
    kFailed = 0x746d6b46,    // its group was not launched; `failure` says why
  };
  std::atomic<std::uint32_t> state{kFree};
  tmkComm* comm = nullptr;
  tamaki::Request* inner = nullptr;
  tamaki::Error failure;
  tmkRequest* next = nullptr;  // in the free list or in the list of a group
};

/// A communicator of the C interface.
struct tmkComm {
  std::atomic<std::uint32_t> magic{0};
  int rank = 0;
  int ranks = 1;
  std::unique_ptr<tamaki::Communicator> impl;
  std::string name;  // " \"name\"" for messages, or empty
  tamaki::c::OpTable ops;

  std::mutex mutex;  // guards all below
  std::string last_error;
  std::deque<tmkRequest> requests;  // never shrinks
  tmkRequest* free_requests = nullptr;
};

namespace tamaki::c {

inline bool alive(tmkComm_t comm) {
  return comm != nullptr && comm->magic.load(std::memory_order_relaxed) == kAliveCommunicator;
}

/// A handle that owns `communicator`. Used by the creating functions and by tests.
tmkComm_t adopt(std::unique_ptr<Communicator> communicator);
/// Ends the handle: its requests and operations become invalid, the communicator is destroyed.
void retire(tmkComm_t comm);

/// A request handle in state kRecorded. May allocate, at most once for each simultaneously outstanding
/// request.
tmkRequest* take_request(tmkComm& comm);
/// Makes the handle invalid and reusable; releases the inner request if there is one.
void free_request(tmkRequest& request);

}  // namespace tamaki::c
