#pragma once
// MSCCL schedules (XML) in and out. Format: microsoft/msccl-tools, msccl/language/ir.py.
//
//   <algo name proto nchannels nchunksperloop ngpus coll inplace outofplace minBytes maxBytes>
//     <gpu id i_chunks o_chunks s_chunks>
//       <tb id send recv chan>
//         <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>
//
// Steps of a tb run in order; messages from one gpu to another on one channel arrive in order; a step waits
// for step `deps` of tb `depid` of its gpu (-1: for none). Types: s send, r receive, cpy copy, re reduce
// into the destination, rcs receive, copy, send; rrc receive, reduce, copy; rrs receive, reduce, send; rrcs
// all of it; nop waits only. Buffers: i input, o output, s scratch. All chunks have one size.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "schedule/program.hpp"

namespace tamaki {

/// The programs of all ranks: a lane for each tb. What MSCCL leaves unsaid is found by a run on symbols:
/// which logical chunks a message carries (sizes), which step completes a result (finish). An algorithm
/// that writes to its input works on a copy: in the output where they are the same chunks (allreduce), else
/// in scratch. Whether the schedule is right is for verify() to say.
///
/// Errors (Code::invalid_argument) begin with "FILE:LINE: " where a line is to blame. Refused: collectives
/// other than allreduce, allgather, reduce_scatter, alltoall, broadcast and reduce (root 0); chunks that do
/// not divide evenly into the ranks' blocks; unknown step types; messages that would carry chunks of sizes
/// that no range of chunks has.
Result<std::vector<Program>> schedule_from_msccl(std::string_view text, std::string_view file);

struct MscclOptions {
  std::string protocol = "Simple";  // Simple, LL or LL128
  std::int64_t min_bytes = 0, max_bytes = 0;
};

/// The other way: each lane's steps taken apart into MSCCL's, each in the tb of its peer and channel (or
/// the tb of the lane's own steps), held in order by dependencies. Loops are unrolled. `programs`: of all
/// ranks, without findings of check(). What the operation does at the end (avg) is not said in this format.
/// Errors: gather, scatter, barrier.
Result<std::string> schedule_to_msccl(std::span<const Program> programs, const MscclOptions& options = {});

}  // namespace tamaki
