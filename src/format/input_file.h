// A regular file that is open for reading. Every read names its offset, so one object can serve several threads. The
// file is read and not mapped, so that a file that shrinks in the meantime gives an error and not a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::format {

class InputFile {
 public:
  // Throws IoError with one of these exit codes: 66 if the file is missing or is not a regular file, 77 if it may not
  // be read, 71 or 74 otherwise.
  explicit InputFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // size of the file when it was opened

  // Reads the bytes from `offset` on into `into`, and returns their number, which is less than the size of `into` only
  // at the end of the file. Throws IoError.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

// Reads a whole file. Throws IoError as InputFile does. Throws DataError if the path is of no regular file, or if the
// file has more than `largest` bytes; the text calls the file by `what` it should be.
std::string read_text(const std::filesystem::path& path, const char* what = "file",
                      std::uint64_t largest = std::numeric_limits<std::uint64_t>::max());

}  // namespace reigen::format
