#include "container/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/check.h"
#include "format/input_file.h"
#include "reigen/base/unique_fd.h"

namespace reigen::container {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  const format::InputFile file(path);  // for its errors
  size_ = static_cast<std::size_t>(file.size());
  if (size_ == 0) return;
  const UniqueFd fd(REIGEN_SYSCALL(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)));
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) base::throw_system_error("mmap", errno, __FILE__, __LINE__);
  data_ = static_cast<const std::byte*>(data);
  ::madvise(data, size_, MADV_RANDOM);  // training reads samples in any order
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace reigen::container
