#pragma once
// Hashing of words, for states and colours.

#include <cstdint>

namespace tamaki::simulation {

constexpr std::uint64_t mix(std::uint64_t x) {  // splitmix64 (Steele, Lea, Flood, OOPSLA 2014)
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  return mix(mix(mix(seed) ^ a) ^ b);
}

}  // namespace tamaki::simulation
