#pragma once
// A schedule as a picture: ranks from top to bottom, each with a row a lane; time from left to right, from
// a simulation in which a step takes one unit of time and a message a little more than half of one; boxes
// are steps, coloured by what they do and labelled with the chunks they move; arrows are messages, coloured
// by the lane that sends them.

#include <span>
#include <string>

#include "schedule/program.hpp"

namespace tamaki {

/// An SVG document. Programs that check() finds at fault, more ranks or steps than a picture holds
/// (kMostDrawnRanks, kMostDrawnSteps) and steps that never run give a picture that says so in words. Titles
/// of boxes (shown by browsers under the pointer) describe the step in full.
std::string draw_svg(std::span<const Program> programs);

inline constexpr int kMostDrawnRanks = 64;
inline constexpr int kMostDrawnSteps = 20000;

}  // namespace tamaki
