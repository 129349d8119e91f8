#pragma once
// An algorithm is one file algorithms/<collective>/<name>.cpp that defines one `Algorithm` value, and one
// line in algorithms.def.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schedule/program.hpp"
#include "topology/topology.hpp"

namespace tamaki {

struct Problem {
  Collective collective = Collective::allreduce;
  int ranks = 1;
  int root = 0;
  bool commutative = true;
  /// Wishes; an algorithm that has no such parameter ignores it.
  int lanes = 1;   // independent streams (rings, trees); each moves its share of the message
  int radix = 2;   // k of k-nomial trees and radix of Bruck
  int pieces = 1;  // chunks per lane or block, for algorithms that pipeline inside the schedule
};

/// What the algorithm's formula promises; tests compare it with the built program.
struct ClosedForm {
  /// Messages on the longest chain (the alpha term), where each lane of a rank sends one message at a time
  /// and takes in one at a time. kNotStated: it depends on how blocks happen to lie.
  std::int64_t rounds = 0;
  static constexpr std::int64_t kNotStated = -1;
  /// Chunks that the busiest sender sends and the busiest receiver receives (the beta term). `chunks` of
  /// them (allreduce, reduce, broadcast), or ranks * `chunks` (block collectives), make up the n bytes of
  /// `cost`.
  std::int64_t chunks_sent = 0;
  std::int64_t chunks_received = 0;
  std::int64_t chunks = 1;  // Program::chunks
};

struct Algorithm {
  std::string_view name;  // "ring"; unique within the collective
  Collective collective = Collective::allreduce;
  std::string_view source;  // paper and section, or "folklore"
  std::string_view cost;    // alpha-beta-gamma formula, n bytes, p ranks
  /// For problems with commutative = false the result is the left-to-right fold in rank order, up to
  /// association. (For commutative problems the program may choose another order.)
  bool keeps_order = false;
  /// Each result chunk is made by ONE step with the p contributions as sources 0..p-1 in rank order: the
  /// same bits for every such algorithm, any lanes and slices. What `reproducible` asks for.
  bool canonical = false;
  /// Out of place: data may be read from the sender's user buffer when the receiving step runs (late), and
  /// written to a `lands` place when the sending step runs (early). Proved by the verifier's direct mode.
  bool direct_safe = false;
  /// Right when input and output share memory in the collective's in-place form, and messages move through
  /// slots. Proved by the verifier.
  bool in_place_safe = true;
  /// Both at once. Where it is false, a call in place must not use direct mode. Proved by the verifier.
  bool direct_in_place_safe = false;
  /// Every step's extent is an input chunk of the sender and an output chunk of the receiver: ranks that
  /// know only their own counts (gatherv, scatterv, alltoallv) can run it with blocks of any sizes.
  bool pairwise_sizes = false;
  /// Blocks may have different sizes, known to every rank (allgatherv, reduce_scatterv): every step's
  /// extent names exactly the chunks that it moves, not just others that are as large when all blocks are
  /// equal. Proved by the verifier.
  bool uneven_safe = true;
  /// Builds other programs for other topologies of as many ranks: proved over many of them
  /// (verify/places.hpp).
  bool uses_topology = false;
  /// Empty where the problem is supported on this topology, else the reason why not ("needs a power of two
  /// of ranks, has 6"). A topology of other than `ranks` ranks is one of which nothing is known.
  std::string (*refuses)(const Topology&, const Problem&) = nullptr;
  /// Rank `rank`'s part, where it does not refuse. Pure: same arguments, same program.
  Program (*build)(const Topology&, const Problem&, int rank) = nullptr;
  ClosedForm (*closed_form)(const Topology&, const Problem&) = nullptr;
};

/// All algorithms of algorithms.def, in its order.
std::span<const Algorithm* const> all_algorithms();
/// Null where there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
/// "ring, direct, ..." of one collective, for messages.
std::string algorithm_names(Collective collective);

}  // namespace tamaki
