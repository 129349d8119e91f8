#pragma once
// Placements as the files that launchers take, both ways. A placement that is read has its ranks in the
// order of the file; a rank's slot is its number among those of its host, and NUMA domain, GPU and NIC are
// those of place_of_slot unless the file says more.
//
// Hosts are named as Machine::host_names has them; where hosts have no names, "+n3" (Open MPI's own way)
// and "host3" are host 3. All errors (Code::invalid_argument) are "FILE:LINE: what is wrong".

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "topology/placement/placement.hpp"

namespace tamaki {

/// Most ranks of a file.
inline constexpr std::int32_t kMostPlacedRanks = 1 << 24;

/// Fujitsu MPI's --vcoordfile: a line a rank, "(x,y,z)" in the dimensions that the job sees, or "(x)" =
/// host where the machine is no torus; " core=N" and " mem=..." may follow and are passed over.
Result<Placement> placement_from_vcoord(const Machine& machine, std::string_view text,
                                        std::string_view file);
std::string placement_to_vcoord(const Machine& machine, const Placement& placement);

/// Open MPI's rankfile: "rank 3=node7 slot=1:4" (socket:core), "slot=12" (core), ranges and lists of them
/// (the first core counts). Cores are numbered through the NUMA domains in order.
Result<Placement> placement_from_rankfile(const Machine& machine, std::string_view text,
                                          std::string_view file);
std::string placement_to_rankfile(const Machine& machine, const Placement& placement);

/// Slurm's SLURM_HOSTFILE for --distribution=arbitrary: hosts by rank, separated by newlines or commas;
/// "node[1-3,7]" and "node3*4" (four times) are expanded.
Result<Placement> placement_from_hostlist(const Machine& machine, std::string_view text,
                                          std::string_view file);
std::string placement_to_hostlist(const Machine& machine, const Placement& placement);

/// Tells the three apart by the first line, and reads the file at `path`.
Result<Placement> read_placement(const Machine& machine, const std::string& path);

/// Name of a host: its own, or "+n3".
std::string host_name(const Machine& machine, std::int32_t host);

}  // namespace tamaki
