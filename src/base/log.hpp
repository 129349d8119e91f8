#pragma once
// The one log sink: lines on stderr or in TAMAKI_LOG_FILE. Never used on the data path.

#include <string>
#include <string_view>

namespace tamaki {

enum class Level { none, error, warn, info, debug };

void configure_log(std::string_view level, std::string_view file);
void log(Level level, const std::string& message);
bool log_enabled(Level level);
/// Rank shown in log lines of this process (-1: none).
void set_log_rank(int rank);

}  // namespace tamaki
