#pragma once
// Machines as JSON, both ways. docs/topology.md describes the format; topology/clusters/ has examples.
//
// A figure is a number in B/s, bytes or seconds, a text with a unit ("6.8 GB/s", "400 Gb/s", "0.49 us", "32
// GiB"), or an object {"is": figure, "source": text} with "assumption" or "fit" in the place of "source".
// Any object may have one of the three as well, for all that is in it. Fields that are not known are
// errors.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tamaki {

/// Longest description that is read.
inline constexpr std::size_t kMostDescriptionBytes = std::size_t{64} << 20;

enum class NotesIn : std::uint8_t { no, yes };

/// The description; machine_from_json gives back an equal machine, and with NotesIn::yes the same notes.
std::string machine_to_json(const Machine& machine, NotesIn notes = NotesIn::yes);

/// `file`: named in errors. `shape`: sizes in the place of the description's own ("48x6x48": the dimensions
/// of a torus; "32": hosts), empty for none. Errors (Code::invalid_argument): "FILE:LINE: FIELD: what is
/// wrong".
Result<Machine> machine_from_json(std::string_view text, std::string_view file,
                                  std::span<const std::int32_t> shape = {});

/// "numa", "gpu", "nic", "hub".
std::string_view name_of(Part::Kind kind);

/// "6.8 GB/s", "0.49 us".
std::string format_rate(double bytes_per_second);
std::string format_duration(double seconds);
/// "4x4x2m".
std::string shape_text(const std::vector<TorusAxis>& axes);

/// TofuD's placement of a job: logical X on a Hamiltonian ring over (x, a), Y over (y, b), Z over (z, c),
/// neighbours one hop apart (six dumps of real jobs,
/// github.com/zhuangbility111/Fugaku_mpi_process_mapping_tool, data/). The box is the smallest: ceil(X/2) x
/// ceil(Y/3) x ceil(Z/2) units of 2x3x2. An outer axis wraps where the box spans the machine's. A dimension
/// that has no such ring (odd X or Z above 1; 2, which is one link) does not wrap. Errors: the shape is not
/// within 2 x, 3 y, 2 z of `machine` (24x23x24 is Fugaku).
Result<Torus> tofu_torus(std::span<const std::int32_t> shape, std::span<const std::int32_t> machine);

}  // namespace tamaki
