#pragma once
// tmkConfig_t of any version of its caller, as the CommunicatorConfig that it means.

#include "base/result.hpp"
#include "communicator/communicator.hpp"
#include "tamaki/tamaki.h"

namespace tamaki::c {

/// `base` with the fields that `config` sets. Reads no byte beyond config->size, so that callers built with
/// an older header are served; fields of newer ones are ignored. Null: `base` itself. Errors:
/// invalid_argument, naming field, value and range.
Result<CommunicatorConfig> read_config(const tmkConfig_t* config, CommunicatorConfig base);

}  // namespace tamaki::c
