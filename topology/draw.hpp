#pragma once
// A machine as a picture (SVG), with the ranks of a communicator on it.

#include <string>
#include <vector>

#include "topology/placement/placement.hpp"

namespace tamaki {

/// Above these, hosts are drawn as lines or pods of them, and cables between leaves and spines as one band.
inline constexpr std::int32_t kMostDrawnHosts = 20'000;
inline constexpr std::int32_t kMostDrawnCables = 4'000;

struct MachinePicture {
  /// Ranks to show; empty for none. Hosts say which they hold.
  Placement placement = {};
  /// Colour number of each rank (ranks of one group alike); empty: all alike.
  std::vector<std::int32_t> colour_of_rank = {};
  /// A line above the picture; empty: the machine's name.
  std::string title = {};
};

/// The fabric - planes of a torus, leaves and spines, switches and cables - and the inside of a host of
/// each kind (the first four kinds). Well-formed XML of 30 KB to some MB.
std::string draw_machine(const Machine& machine, const MachinePicture& picture = {});

}  // namespace tamaki
