#pragma once
// Runs a plan: Plan x buffers -> completion. Knows nothing of algorithms, little of transports (rings, and the facts
// of a Link).
//
// Every lane goes through its steps once per slice. A step runs when its dependencies are met, a message lies in the
// ring of each source, and each destination has a free slot; then it touches memory once: reduces or copies straight
// out of the slots that came in, into local buffers and the slots that go out.
//
// How a message travels is the sender's choice, told in its header:
//   mailbox  up to kMailboxBytes: data and arrival signal in the same cache lines
//   slot     through the slot
//   pull     header only: the receiver reads the sender's buffer in place (loads, or one process_vm_readv)
//   pushed   header only: the sender has already written into the receiver's output
// pull and pushed need a plan whose algorithm is proved safe for it. An execution completes when its last step has run
// and every pulled message has been consumed: then the caller may reuse its buffers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "execute/plan.hpp"

namespace tamaki {

/// Memory that executions of one communicator use one after the other. Sized when plans are made, never on the way.
struct Workspace {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  std::vector<std::byte> staging_memory;
  std::byte* staging = nullptr;       // one place of `staging_stride` bytes per operand of a step
  std::size_t staging_stride = 0;
  std::vector<std::byte> scratch_memory;
  std::byte* scratch = nullptr;       // 64-byte aligned
  std::size_t scratch_bytes = 0;

  /// Grows to what `plan` needs. Scratch keeps its content: an operation may be under way.
  void fit(const Plan& plan, std::size_t slot_bytes);
};

struct ExecutorLimits {
  std::size_t direct_min = 4096;       // smallest message worth a header-only transfer by loads
  std::size_t single_copy_min = 16384; // and by process_vm_readv
};

enum class Progress { done, moved, waiting, failed };

class Execution {
 public:
  Execution() = default;
  /// Buffers must be readable and writable for the plan's extents until done. `stream_messages`: steps that send store
  /// around the caches (see store_trial.hpp).
  void start(const Plan& plan, const void* input, void* output, const OpContext& op, Workspace& workspace,
             const ExecutorLimits& limits, bool stream_messages);
  /// As far as possible without waiting.
  Progress advance();
  /// Some lane's next step would run, or the end has come: advance() would not return `waiting`.
  bool can_move();
  const Plan* plan() const { return plan_; }
  const Error& error() const { return error_; }
  /// The first thing that it waits for on a link that `counts(link)` takes. Allocates nothing.
  struct Missing {
    enum class What : std::uint8_t { other_lane, connection, reader, message, room };
    What what = What::other_lane;
    const Link* link = nullptr;  // null: other_lane, or nothing that `counts` takes
    std::size_t lane = 0;        // of message and room
  };
  template <class Counts>
  Missing missing(const Counts& counts) const {
    return find_missing([](const Link& link, const void* context) { return (*static_cast<const Counts*>(context))(link); },
                        &counts);
  }
  Missing missing() const {
    return missing([](const Link&) { return true; });
  }
  /// In words: "a message from rank 3 (lane 0, step 5 of 14, slice 2)".
  std::string text_of(const Missing& missing) const;

 private:
  Missing find_missing(bool (*counts)(const Link&, const void*), const void* context) const;
  struct LaneState {
    std::uint32_t step = 0;   // next, relative to the lane
    std::uint32_t slice = 0;
  };
  struct PeerOutput {
    bool known = false;
    MemoryName name;
  };
  enum class Outcome { done, not_ready, failed };

  bool step_ready(const PlanStep& step, std::uint32_t slice) const;
  Outcome run_step(const PlanStep& step, std::uint32_t slice);
  bool dependencies_met(const PlanStep& step, std::uint32_t slice) const;
  std::uint64_t part_bytes(const PlanStep& step, std::uint32_t slice, std::int32_t piece) const;
  std::uint64_t message_bytes(const PlanStep& step, std::uint32_t slice) const;
  std::byte* base(Buffer buffer) const;
  std::byte* local(const PlanOperand& operand, std::uint32_t slice) const;
  /// Where the data of a message that has arrived can be read. Null: failed, or (not_ready) not all lines here yet.
  const std::byte* open_message(const PlanStep& step, int source, std::uint64_t bytes, std::uint32_t slice, Outcome* outcome);
  void choose(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice);
  void compute(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice);
  Outcome send_all(const PlanStep& step, std::uint64_t bytes, std::uint32_t slice);
  bool drained();
  Outcome fail_with(Error error);
  Error mismatch(const Link& link) const;

  const Plan* plan_ = nullptr;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  const OpContext* op_ = nullptr;
  Workspace* workspace_ = nullptr;
  ExecutorLimits limits_;
  bool direct_ = false;       // allowed for these buffers
  bool stream_messages_ = false;
  bool draining_ = false;
  std::uint32_t open_lanes_ = 0;
  LocalName input_name_, output_name_;
  std::vector<LaneState> lanes_;
  std::vector<PeerOutput> peer_outputs_;
  std::vector<std::uint32_t> pulled_;  // per link: last sequence sent as pull, 0 none
  bool pulled_any_ = false;
  bool links_open_ = false;
  bool flushes_ = false;      // some link's transport has to pass messages on

  struct Target {  // of a peer destination in the step at hand
    MessageKind kind = MessageKind::slot;
    bool mailbox = false;
    bool put = false;                 // push by process_vm_writev after computing
    std::byte* write = nullptr;       // where the kernel writes, null: nothing to write
    MemoryName source;                // pull
    std::uint64_t remote = 0;         // put
  };
  std::vector<Target> targets_;
  std::size_t writes_ = 0;            // destinations in workspace_->destinations
  Error error_;
};

}  // namespace tamaki
