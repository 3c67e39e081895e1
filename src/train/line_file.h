// A text file that grows by whole lines and can be cut back to the first ones: what a run leaves behind step by step.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "reigen/base/unique_fd.h"

namespace reigen::train {

class LineFile {
 public:
  using Keep = std::function<bool(std::string_view line)>;

  // Keeps the lines of an existing file up to the first that `keep` refuses or that has no newline; without `keep`
  // none. Throws IoError.
  explicit LineFile(std::filesystem::path path, const Keep& keep = {});
  ~LineFile();                         // writes what is left; errors are lost, so call flush() first
  LineFile(const LineFile&) = delete;  // two writers would mix their lines
  LineFile& operator=(const LineFile&) = delete;

  void append(std::string_view line);  // with its newline; reaches the file within a second of further calls
  void flush();                        // throws IoError

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace reigen::train
