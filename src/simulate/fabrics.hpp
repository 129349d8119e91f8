#pragma once
// The kinds of fabric that Network::of() knows, one class each in fabrics.cpp.

#include <memory>

#include "simulate/network.hpp"

namespace tamaki::simulation {

std::unique_ptr<Network> make_fabric(const Machine& machine, const Placement& placement,
                                     const NetworkOptions& options);

}  // namespace tamaki::simulation
