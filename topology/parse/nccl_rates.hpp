#pragma once
// Rates that NCCL's files state as generations: both directions of the conversion use this one table.

#include <cstdint>
#include <string_view>

namespace tamaki {

struct PcieGeneration {
  std::string_view speed;  // how Linux prints it: "16.0 GT/s PCIe" (older: "16 GT/s")
  double lane = 0;         // B/s a lane and direction after 8b/10b or 128b/130b encoding
};
inline constexpr PcieGeneration kPcieGenerations[] = {
    {"2.5", 2.5e9 * 0.8 / 8},     {"5", 5e9 * 0.8 / 8},         {"8", 8e9 * 128 / 130 / 8},
    {"16", 16e9 * 128 / 130 / 8}, {"32", 32e9 * 128 / 130 / 8}, {"64", 64e9 * 128 / 130 / 8},
};

/// B/s a lane for "16.0 GT/s PCIe", "16 GT/s"; 0 where it is none.
inline double lane_rate(std::string_view speed) {
  const std::size_t end = speed.find(" GT/s");
  if (end == std::string_view::npos) return 0;
  speed = speed.substr(0, end);
  if (speed.ends_with(".0")) speed.remove_suffix(2);
  for (const PcieGeneration& generation : kPcieGenerations)
    if (generation.speed == speed) return generation.lane;
  return 0;
}

/// One NVLink, each direction, by compute capability: generation 1 (sm 60) 20 GB/s, 2 to 4 (sm 70 to 90) 25
/// GB/s, 5 (sm 100) 50 GB/s.
inline double nvlink_rate(std::int32_t compute_capability) {
  if (compute_capability >= 100) return 50e9;
  return compute_capability >= 70 || compute_capability == 0 ? 25e9 : 20e9;
}

}  // namespace tamaki
