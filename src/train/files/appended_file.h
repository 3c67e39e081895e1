// A file to which a run appends records step by step, for example lines, and which can be cut back to its first ones.
// Thread rule: used by one thread only.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "reigen/base/unique_fd.h"

namespace reigen::train {

class AppendedFile {
 public:
  // Says how many of the first bytes of a file are kept.
  using Kept = std::function<std::size_t(std::string_view content)>;

  // If the file exists, keeps its first `kept` bytes, and cuts off the rest. Without `kept`, nothing is kept. Throws
  // IoError.
  explicit AppendedFile(std::filesystem::path path, const Kept& kept = {});
  ~AppendedFile();                             // writes the remaining records; errors are lost, so call flush() first
  AppendedFile(const AppendedFile&) = delete;  // two writers would mix their records
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Appends a whole record; a line includes its newline. If the last write was half a second ago or longer, or if 64
  // KiB have collected, writes all collected records to the file. If the file cannot be written, for example because
  // the disk is full, the records are kept in memory. Writing them is then tried again every half second. Throws
  // IoError if more than 64 MiB are kept.
  void append(std::string_view record);
  void flush();  // throws IoError, or NoRoom for a full disk; records that were not written are kept

  // The reason why records are kept in memory and not in the file. It is empty if none is kept.
  const std::string& trouble() const { return trouble_; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string buffer_;
  std::string trouble_;
  std::chrono::steady_clock::time_point flushed_;
};

// Keeps the lines before the first one that `keep` refuses or that has no newline.
AppendedFile::Kept first_lines(std::function<bool(std::string_view line)> keep);

}  // namespace reigen::train
