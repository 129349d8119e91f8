#pragma once
// Groups at the C edge: which handles the open group of this thread has seen.

#include "guard.hpp"

namespace tamaki::c {

/// Hands `call` to the open group of this thread. `request`: the handle of a non-blocking call, or null.
Status record_in_group(tmkComm& comm, const Call& call, tmkRequest* request);

}  // namespace tamaki::c
