// A file that is either whole or absent. It is written as "<path>.tmp", fsynced and renamed to <path>; then the folder
// is fsynced. A process that opens <path> sees the whole old content or the whole new content, even if the writer or
// the machine dies during the write. If a writer was killed and left a "<path>.tmp", the next writer reuses this file.
// The writer locks "<path>.tmp", so a second writer of the same path gets an error. On a file system without locks, two
// writers may disturb each other. Thread rule: an AtomicFile belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"
#include "reigen/format/hash.h"

namespace reigen::format {

class AtomicFile {
 public:
  // If the path is a symbolic link, the file to which it points is replaced, and the link remains. Throws NoRoom when
  // the disk is full. Throws IoError with exit code 77 when the permission is missing, with 73 when another process is
  // writing the same path, and with 74 for other errors, such as a missing folder.
  explicit AtomicFile(std::filesystem::path path, Hashed hashed = Hashed::kWhole);
  ~AtomicFile();                           // without commit(): removes "<path>.tmp" and leaves <path> as it was
  AtomicFile(const AtomicFile&) = delete;  // two owners would rename one file twice
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // throws IoError
  void commit();                                 // throws IoError; the file is fsynced when it returns

  std::uint64_t bytes() const { return bytes_; }  // number of bytes written so far
  // Size and hash of the bytes written so far. After commit() they equal those of hash_file(path). The hash is valid
  // only with Hashed::kWhole.
  FileHash hash() const { return {bytes_, hash_.value()}; }

 private:
  std::filesystem::path path_;
  std::string temporary_;
  UniqueFd fd_;  // also holds the lock on the temporary file
  Hashed hashed_;
  Hash64 hash_;
  std::uint64_t bytes_ = 0;
  std::uint64_t started_ = 0;  // bytes that the kernel was asked to start writing to the disk
};

FileHash write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
FileHash write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace reigen::format
