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

  // With its newline; reaches the file within a second of further calls. Where it cannot be written, as on a disk that
  // is full, it is kept in memory, with those that follow, and tried again each second; throws IoError beyond 64 MiB.
  void append(std::string_view line);
  void flush();  // throws IoError (NoRoom); what was not written is kept and tried again

  // Why lines are kept in memory; empty: they are not.
  const std::string& trouble() const { return trouble_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string buffer_;
  std::string trouble_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace reigen::train
