// A text file to which a run appends whole lines step by step, and which can be cut back to its first lines.
// Thread rule: used by one thread only.
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

  // If the file exists, keeps its lines before the first line that `keep` refuses or that has no newline, and cuts off
  // the rest. Without `keep`, no line is kept. Throws IoError.
  explicit LineFile(std::filesystem::path path, const Keep& keep = {});
  ~LineFile();                         // writes the remaining lines; errors are lost, so call flush() first
  LineFile(const LineFile&) = delete;  // two writers would mix their lines
  LineFile& operator=(const LineFile&) = delete;

  // Appends a line, which includes its newline. If the last write was half a second ago or longer, or if 64 KiB have
  // collected, writes all collected lines to the file. If the file cannot be written, for example because the disk is
  // full, the lines are kept in memory. Writing them is then tried again every half second. Throws IoError if more than
  // 64 MiB are kept.
  void append(std::string_view line);
  void flush();  // throws IoError, or NoRoom for a full disk; lines that were not written are kept

  // The reason why lines are kept in memory and not in the file. It is empty if no lines are kept.
  const std::string& trouble() const { return trouble_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string buffer_;
  std::string trouble_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace reigen::train
