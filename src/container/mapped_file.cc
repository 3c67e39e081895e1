#include "container/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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
  // Training reads samples in any order. Reading ahead would fetch 128 kB around each small value and each page of an
  // index. What is longer says so by will_need().
  ::madvise(data, size_, MADV_RANDOM);
}

// Without reading ahead, each page of a value that is not in memory would be a read of its own, and the program would
// wait for one after the other: 27 times for a photo of 110 kB.
void MappedFile::will_need(std::span<const std::byte> bytes) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (bytes.size() <= 2 * page) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);  // advice alone: a failure changes nothing
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace reigen::container
