// A file that is whole or absent: written beside as "<path>.tmp", fsynced, renamed over <path>, and the folder fsynced.
// Whoever opens <path> sees the old content or the new one, never a part, whatever dies in between. A "<path>.tmp" left
// by a killed writer is used again by the next one. Where the file system has no locks, two writers of one path are not
// kept apart. Thread rule: an AtomicFile belongs to one thread.
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
  // Where the path is a symbolic link, what it leads to is written and the link stays. Throws IoError: 77 no
  // permission, 73 another process is writing the same path, 74 otherwise (folder missing), and NoRoom.
  explicit AtomicFile(std::filesystem::path path, Hashed hashed = Hashed::kWhole);
  ~AtomicFile();                           // without commit(): removes "<path>.tmp" and leaves <path> as it was
  AtomicFile(const AtomicFile&) = delete;  // two owners would rename one file twice
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // throws IoError
  void commit();                                 // throws IoError; the file is on the disk when it returns

  std::uint64_t bytes() const { return bytes_; }             // written so far
  FileHash hash() const { return {bytes_, hash_.value()}; }  // of what was written so far: equals hash_file(path)

 private:
  std::filesystem::path path_;
  std::string temporary_;
  UniqueFd fd_;  // also holds the lock on the temporary file
  Hashed hashed_;
  Hash64 hash_;
  std::uint64_t bytes_ = 0;
  std::uint64_t started_ = 0;  // bytes that the system was told to bring to the disk
};

FileHash write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
FileHash write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace reigen::format
