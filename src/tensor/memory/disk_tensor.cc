#include "tensor/memory/disk_tensor.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/agree.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"

namespace reigen::tensor {
namespace {

ExitCode code_of(int error) {
  if (error == ENOENT || error == ENOTDIR) return ExitCode::kInputMissing;
  if (error == EACCES || error == EPERM || error == EROFS) return ExitCode::kPermission;
  return ExitCode::kIo;
}

[[noreturn]] void refuse(const std::filesystem::path& directory, const char* what, std::uint64_t bytes, int error) {
  throw IoError(
      Report{.what = fmt::format("[offload] cannot {} a file of {} bytes in {}", what, bytes, directory.string()),
             .got = base::errno_text(error),
             .expected = "a directory on a disk with room, where this user may write",
             .fix = "choose another directory, or leave offload out"},
      code_of(error));
}

struct NewFile {
  UniqueFd file;
  std::string path;
};

NewFile make_file(const std::filesystem::path& directory, std::uint64_t bytes) {
  NewFile made;
  made.path = (directory / ".reigen_offload_XXXXXX").string();
  made.file = UniqueFd(::mkostemp(made.path.data(), O_CLOEXEC));
  if (!made.file) refuse(directory, "make", bytes, errno);
  if (::ftruncate(made.file.get(), static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::unlink(made.path.c_str());
    refuse(directory, "make", bytes, error);
  }
  return made;
}

// Allocates disk blocks for these bytes of the file. It does not call posix_fallocate(), which would write all blocks
// on a file system that cannot allocate them. On such a file system each block is allocated when it is written.
void take_blocks(const UniqueFd& file, const std::filesystem::path& directory, std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  while (::fallocate(file.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;  // FUSE returns one or the other
    refuse(directory, "take the blocks of", end - begin, errno);
  }
}

at::Tensor map(const UniqueFd& file, const std::filesystem::path& directory, std::int64_t count, at::ScalarType type) {
  const std::size_t bytes = static_cast<std::size_t>(count) * c10::elementSize(type);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) refuse(directory, "map", bytes, errno);
  return at::from_blob(
      memory, {count}, [memory, bytes](void*) { ::munmap(memory, bytes); }, at::TensorOptions().dtype(type));
}

}  // namespace

at::Tensor disk_tensor(std::int64_t count, at::ScalarType type, const std::filesystem::path& directory,
                       std::int64_t first, std::int64_t last) {
  if (count == 0) return at::empty({0}, at::TensorOptions().dtype(type));
  const std::uint64_t size = c10::elementSize(type);
  const NewFile made = make_file(directory, static_cast<std::uint64_t>(count) * size);
  ::unlink(made.path.c_str());
  take_blocks(made.file, directory, static_cast<std::uint64_t>(std::max<std::int64_t>(first, 0)) * size,
              static_cast<std::uint64_t>(std::min(last, count)) * size);
  return map(made.file, directory, count, type);
}

at::Tensor common_disk_tensor(const Communicator& ranks, std::int64_t count, at::ScalarType type,
                              const std::filesystem::path& directory) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * c10::elementSize(type);
  // Rank 0 must remove the name, whatever happens. The file remains, because the ranks hold it open.
  struct Named {
    std::string path = {};
    ~Named() {
      if (!path.empty()) ::unlink(path.c_str());
    }
  } named;
  at::Tensor result;
  const std::string what = "common_disk_tensor";
  const std::string path = comm::attempt_first(ranks, what, [&] {
    const NewFile made = make_file(directory, bytes);
    named.path = made.path;
    take_blocks(made.file, directory, 0, bytes);
    result = map(made.file, directory, count, type);
    return made.path;
  });
  comm::attempt(ranks, what, [&] {
    if (ranks.rank() == 0) return;
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) refuse(directory, "open", bytes, errno);
    result = map(file, directory, count, type);
  });
  return result;
}

}  // namespace reigen::tensor
