#include "config.hpp"

#include <algorithm>
#include <cstring>

namespace tamaki::c {
namespace {

static_assert(offsetof(tmkConfig_t, size) == 0 && offsetof(tmkConfig_t, version) == 8,
              "the head of tmkConfig_t never changes: it is what tells the rest");
constexpr std::size_t kHead = offsetof(tmkConfig_t, version) + sizeof(unsigned);
constexpr unsigned kFirstVersion = 100;          // 0.1.0
constexpr std::size_t kLargestSize = 64 * 1024;  // beyond it the struct was not initialised

Status read_flag(const char* field, int value, bool* flag) {
  if (value < -1 || value > 1)
    return fail(Code::invalid_argument,
                std::string("config->") + field + "=" + std::to_string(value) + " is none of 0, 1, -1");
  if (value >= 0) *flag = value == 1;
  return {};
}

}  // namespace

Result<CommunicatorConfig> read_config(const tmkConfig_t* config, CommunicatorConfig base) {
  if (config == nullptr) return base;
  std::size_t size = 0;
  unsigned version = 0;
  std::memcpy(&size, &config->size, sizeof size);
  if (size < kHead || size > kLargestSize)
    return fail(Code::invalid_argument, "config->size=" + std::to_string(size) + " is not in " +
                                            std::to_string(kHead) + ".." + std::to_string(kLargestSize) +
                                            ": initialise with TMK_CONFIG_INIT");
  std::memcpy(&version, reinterpret_cast<const char*>(config) + offsetof(tmkConfig_t, version),
              sizeof version);
  if (version < kFirstVersion)
    return fail(Code::invalid_argument, "config->version=" + std::to_string(version) + " is below " +
                                            std::to_string(kFirstVersion) +
                                            ": initialise with TMK_CONFIG_INIT");
  tmkConfig_t known = TMK_CONFIG_INIT;
  std::memcpy(&known, config, std::min(size, sizeof known));

  if (known.timeout_ms != -1) {
    if (known.timeout_ms < 1)
      return fail(Code::invalid_argument, "config->timeout_ms=" + std::to_string(known.timeout_ms) +
                                              " is not in 1..2147483647 and not -1");
    base.timeout_ms = known.timeout_ms;
  }
  if (Status s = read_flag("reproducible", known.reproducible, &base.reproducible); !s)
    return pass(std::move(s));
  if (Status s = read_flag("progress_thread", known.progress_thread, &base.progress_thread); !s)
    return pass(std::move(s));
  if (Status s = read_flag("check", known.check, &base.check); !s) return pass(std::move(s));
  if (known.transports != nullptr) base.transports = known.transports;
  if (known.algorithm != nullptr) base.algorithm = known.algorithm;
  if (known.name != nullptr) base.name = known.name;
  return base;
}

}  // namespace tamaki::c
