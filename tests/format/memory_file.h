// A file in memory, for tests with thousands of files. The parsers read files, and these files need no disk.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::tests {

class MemoryFile {
 public:
  MemoryFile(const void* data, std::size_t size) : fd_(memfd_create("reigen-test", MFD_CLOEXEC)) {
    if (!fd_ || ::write(fd_.get(), data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace reigen::tests
