#pragma once
// A file for the result of a long run: opened before the run, so that a path that cannot be written is
// known then.

#include <string>

#include "base/result.hpp"

namespace tamaki::tools {

/// Lifetime: open() before the work, write() after it. What the file held stays until write(); a file that
/// open() made and write() never filled is removed again.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// `path`: "" for no file, "-" for stdout. Errors name `option` ("--json"), the path and the reason.
  Status open(const char* option, const std::string& path);
  /// Replaces the file's contents. Nothing where no file was asked for.
  Status write(const std::string& text);

 private:
  tl::unexpected<Error> failed(int error) const;

  std::string option_, path_;
  int fd_ = -1;
  bool made_ = false;  // by open(), and still empty
};

}  // namespace tamaki::tools
