#include "base/result.hpp"

#include <cerrno>
#include <cstring>

namespace tamaki {

tl::unexpected<Error> fail_errno(const std::string& what, Scope scope) {
  const int saved = errno;
  const Code code = saved == ENOMEM || saved == ENOSPC || saved == EMFILE || saved == ENFILE ? Code::out_of_memory
                                                                                            : Code::system;
  char text[128];
  return fail(code, what + ": " + strerror_r(saved, text, sizeof text) + " (errno " + std::to_string(saved) + ")",
              scope);
}

}  // namespace tamaki
