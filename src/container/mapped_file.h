// A whole file in memory, read-only. The file must not shrink while it is mapped: the kernel then ends a process that
// reads the missing part with SIGBUS. Reigen's writers never change a container, they replace it.
// Thread rule: any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace reigen::container {

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws IoError, as format::InputFile
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;  // two owners would unmap one memory twice
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Asks the kernel to read these bytes of the file in one go, before they are used. Few bytes are left to the page
  // fault.
  void will_need(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace reigen::container
