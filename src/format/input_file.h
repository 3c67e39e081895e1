// A regular file open for reading. Reads go by offset, so one object serves several threads.
// Reading instead of mapping: a file that shrinks while it is read is an error, not a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::format {

class InputFile {
 public:
  // Throws IoError: 66 missing or not a file, 77 not readable, 71 or 74 otherwise.
  explicit InputFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Fills `into` as far as the file goes and returns how much that was. Throws IoError.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

}  // namespace reigen::format
