#pragma once
// Fusion: adjacent steps of a lane that hand a chunk on through memory become one step, so that the chunk
// is touched once: recv + reduce -> recv_reduce; recv + send -> recv_copy_send; recv + reduce + send ->
// recv_reduce_send or, where the result is kept, recv_reduce_copy_send; reduce + send -> reduce_send; copy
// + send -> copy_send.

#include "schedule/program.hpp"

namespace tamaki {

/// The same program with fewer steps; equal input gives equal output. `program` must have no findings of
/// check().
///
/// A step is fused with the next of its lane only if no other step depends on the first, the second depends
/// on nothing that the first does not, both have the same size, and a scratch chunk between them is dropped
/// only where nothing reads it later. A fused step needs all its messages and all its room at once: whether
/// a schedule stays free of deadlocks is a matter of all ranks, so what was fused is proved again
/// (verify_algorithm does). Hints that messages land in scratch hold only where the receiver still puts
/// them there.
Program fuse(const Program& program);

}  // namespace tamaki
