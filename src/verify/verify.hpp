#pragma once
// The proof of a schedule: takes the programs of all ranks and shows, for every order of execution, that
//   - every result is complete and right for its collective, each contribution in it exactly once, and what
//   the
//     operation does at the end (`finish`) done exactly once, by the step that completes the result; all
//     ranks of an allreduce get the same association, hence the same bits; a barrier ends nowhere before it
//     has begun everywhere
//   - sends match receives in every FIFO, in width and size; no message is left over; hints where messages
//   land are true
//   - nothing gets stuck, with the fewest slots a FIFO may have, for a message of several slices
//   - no two accesses of a chunk, one of them a write, are unordered; nothing is read before it is written;
//   nothing is
//     out of bounds
//   - what an algorithm promises beyond that holds: in place, direct mode, order, canonical results, uneven
//   blocks
//
// Direct mode: a message whose step has one source, a chunk of input or output, may be read there by the
// receiving step (late); a message with a hint may be written to where it lands by the sending step
// (early), once the sender has heard from the receiver. Either may happen for each message, so both must be
// right.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/check.hpp"
#include "schedule/program.hpp"

namespace tamaki {

/// What to prove of a list of programs beyond what must always hold.
struct VerifyOptions {
  bool in_place = false;     // input and output share memory in the collective's in-place form
  bool direct = false;       // direct mode
  bool keeps_order = false;  // results are the fold in rank order
  bool canonical = false;    // results are made by one step out of contributions 0..p-1
  bool uneven = false;       // sizes name exactly the chunks moved, so blocks may differ in size
  bool pairwise_sizes =
      false;  // every message is sized by an input chunk of its sender and an output chunk of its receiver
  /// Prove the order of accesses also where some chunks are empty (few elements, or blocks of different
  /// sizes): steps on empty chunks are skipped and then order nothing. Time grows with the square of the
  /// schedule.
  bool empty_chunks = false;
  int slots = 2;   // messages a FIFO holds: the fewest that transports have (depth >= 2 in ring.hpp)
  int slices = 2;  // times that each lane runs its steps
  std::size_t limit = 12;  // findings after which to stop
};

struct Report {
  std::string subject;            // "allreduce ring, 4 ranks"
  std::vector<Finding> findings;  // empty: proved
  std::int64_t steps = 0;         // expanded, of all ranks
  std::int64_t messages = 0;
  std::int64_t proofs = 0;  // programs times modes looked at
  /// What holds, whether asked for or not (of the last proof).
  bool ordered = false, canonical = false, uneven = false, pairwise_sizes = false;

  bool ok() const { return findings.empty(); }
  /// "allreduce ring, 4 ranks: proved (24 steps, 24 messages)", or one line a finding.
  std::string text() const;
};

/// Proves one schedule; programs[r] is that of rank r. Garbage is reported, never followed.
Report verify(std::span<const Program> programs, const VerifyOptions& options = {});

struct ProofOptions {
  Topology topology;       // empty: all ranks on one host
  bool fused = true;       // prove the fused programs too, where fusion changes any
  std::size_t limit = 12;  // findings after which to stop
};

/// Builds the programs of all ranks and proves them in every mode that the algorithm promises: out of
/// place, in place, direct, direct in place, order (for problems that are not commutative), canonical,
/// sizes. A promise that does not hold is a finding. A problem that the algorithm refuses is reported as a
/// finding, too.
Report verify_algorithm(const Algorithm& algorithm, const Problem& problem,
                        const ProofOptions& options = {});

/// The same for programs at hand, one a rank, that are said to be the algorithm's for this problem.
Report verify_programs(const Algorithm& algorithm, const Problem& problem,
                       const std::vector<Program>& programs, const ProofOptions& options = {});

/// "allreduce ring, 5 ranks, root 2, 3 lanes, radix 4, 2 pieces, not commutative".
std::string describe(const Algorithm& algorithm, const Problem& problem);

/// Problems that together cover the algorithm: rank counts 1..64 and some up to 1024, no more than
/// `max_ranks`; all roots of few ranks and some of many; lanes, radices and pieces where they change the
/// programs. Those that the algorithm refuses are left out.
std::vector<Problem> default_problems(const Algorithm& algorithm, int max_ranks);
/// The part of them that has the ranks of `topology`, where the algorithm serves that topology.
std::vector<Problem> problems_on(const Algorithm& algorithm, const Topology& topology);

}  // namespace tamaki
