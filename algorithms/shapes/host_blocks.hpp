#pragma once
// Block collectives on two levels: hosts, and the ranks in each. G, the ranks of the smallest host, is the
// number of owners that a host has: owner i speaks with the owners i of the other hosts, for itself and for
// the ranks i + G, i + 2G, ... of its host. Hosts of one size have owners only. On rails, owners i are
// those of rail i, and no message leaves its rail.
//
// Three levels, where NUMA domains are known: what an owner exchanges with another domain of its host
// passes through one rank there, another one for each owner, so that a block crosses between domains once.
// In alltoall, where each block has one reader, they cross once each, but together: what the ranks of a
// domain have for a rank of another one is put together by one of them, another one for each reader, and
// crosses in one message.

#include <string_view>

#include "algorithms/shapes/levels.hpp"
#include "schedule/builder.hpp"

namespace tamaki {

/// Each owner passes its blocks around the ring of its owners, and what comes by on to the ranks of its
/// host.
Program host_allgather(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank);
ClosedForm host_allgather_form(const Hierarchy& hierarchy, const Problem& problem);

/// The same backwards: an owner adds what the ranks of its host have for a block, and passes it on.
Program host_reduce_scatter(const Hierarchy& hierarchy, std::string_view name, const Problem& problem,
                            int rank);
ClosedForm host_reduce_scatter_form(const Hierarchy& hierarchy, const Problem& problem);

/// Ranks give their owner i all blocks for the ranks of owners i of the other hosts; it sends each of those
/// all of its host's blocks for it in one message. Blocks must have one size. (PXN: NVIDIA, Doubling
/// all2all performance with NCCL 2.12, 2022.) Between domains, what a rank gets for itself or as an owner
/// comes in one message for each of those blocks, from the domain's relay; only what owners pass on to
/// ranks that are none does not.
Program host_alltoall(const Hierarchy& hierarchy, std::string_view name, const Problem& problem, int rank);
ClosedForm host_alltoall_form(const Hierarchy& hierarchy, const Problem& problem);

}  // namespace tamaki
