#pragma once
// Whether this process is a forked copy of the one that made something.

#include <cstdint>

namespace tamaki {

/// Number of forks between the first call in this process' line of ancestors and this process. One load.
std::uint32_t fork_generation();

}  // namespace tamaki
