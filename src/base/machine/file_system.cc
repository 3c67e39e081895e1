#include "base/machine/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/machine/host_name.h"

namespace reigen::base {

namespace {

bool is_read_only(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags != -1 && (flags & O_ACCMODE) == O_RDONLY;
}

bool means_no_locks(int error, int fd) {
  constexpr int kNotSupportedInKernel = 524;  // the kernel's ENOTSUPP, for which user space has no name
  switch (error) {
    case ENOLCK:
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
    case ENOTTY:
    case EPERM:
    case kNotSupportedInKernel: return true;
    case EBADF: return is_read_only(fd);  // NFS returns EBADF for a read-only file; else EBADF is a bug of Reigen
    default: return false;
  }
}

}  // namespace

LockAttempt try_lock(int fd) {
  for (;;) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return {.outcome = LockAttempt::Outcome::kHeldByAnother, .error = errno};
    const int error = errno;
    const bool none = means_no_locks(error, fd);
    return {.outcome = none ? LockAttempt::Outcome::kNoLocks : LockAttempt::Outcome::kFailed, .error = error};
  }
}

namespace {

std::string holder_in(int fd) {
  char text[256];
  const auto length = ::pread(fd, text, sizeof(text), 0);
  std::string holder(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  const bool plain = std::all_of(holder.begin(), holder.end(), [](char c) { return c >= ' ' && c < '\x7f'; });
  return plain ? holder : "";
}

}  // namespace

LockFile::LockFile(const std::filesystem::path& path) {
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  is_new_ = static_cast<bool>(fd_);
  if (!fd_) fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  // A file of another user that this user may only read can still be locked.
  if (!fd_ && errno == EACCES) fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_) {
    const int error = errno;
    const ExitCode code = exit_code_of_errno(error);
    throw IoError(fmt::format("cannot make {}: {}", path.string(), errno_text(error)),
                  code == ExitCode::kInputMissing ? ExitCode::kIo : code);
  }
  attempt_ = try_lock(fd_.get());
  if (attempt_.outcome == LockAttempt::Outcome::kFailed) {
    if (is_new_) ::unlink(path.c_str());
    throw IoError(fmt::format("cannot lock {}: {}", path.string(), errno_text(attempt_.error)),
                  exit_code_of_errno(attempt_.error));
  }
  if (attempt_.outcome == LockAttempt::Outcome::kHeldByAnother) {
    const std::string holder = holder_in(fd_.get());
    text_ = holder.empty() ? "a lock on " + path.string() : holder;
    return;
  }
  if (attempt_.outcome == LockAttempt::Outcome::kNoLocks) {
    text_ = fmt::format("the file system of {} has no locks ({}): nothing keeps a second job from writing there",
                        path.parent_path().string(), errno_text(attempt_.error));
  }
  const std::string mine = fmt::format("pid {} on {}", ::getpid(), host_name());
  // The text serves only the error messages of other jobs, so a failed write is ignored. If the disk is full, the
  // writes of the files that matter report this error.
  if (::ftruncate(fd_.get(), 0) == 0 && ::pwrite(fd_.get(), mine.data(), mine.size(), 0) < 0) return;
}

bool means_no_sync(int error) {
  switch (error) {
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOTTY:
    case EISDIR: return true;
    default: return false;
  }
}

int sync_folder(const std::filesystem::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // To sync a folder, this function must open it for reading. A user who may write in the folder may be forbidden to
  // read it.
  if (!fd) return errno == EACCES || errno == EPERM ? 0 : errno;
  while (::fsync(fd.get()) != 0) {
    if (errno == EINTR) continue;
    // EBADF: some file systems sync only files that are open for writing, and a folder cannot be opened for writing.
    return means_no_sync(errno) || errno == EBADF || errno == EACCES || errno == EPERM ? 0 : errno;
  }
  return 0;
}

std::optional<std::uint64_t> room_in(const std::filesystem::path& folder) {
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0) return std::nullopt;
  if (room.f_blocks == 0) return std::nullopt;  // some FUSE file systems do not count their blocks
  return std::uint64_t{room.f_bavail} * room.f_frsize;
}

}  // namespace reigen::base
