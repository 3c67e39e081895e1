#include "reigen/format/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/machine/file_system.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kStartWritingAt = std::uint64_t{16} << 20;

ExitCode code_of(int error) {
  const ExitCode code = base::exit_code_of_errno(error);
  return code == ExitCode::kInputMissing ? ExitCode::kIo : code;  // a missing folder of an output is no missing input
}

const char* fix_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return "create the folder first";
    case EACCES:
    case EPERM:
    case EROFS: return "choose a folder that may be written to";
    case ENOSPC:
    case EDQUOT: return "free space or choose another folder";
    default: return "choose another path";
  }
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* call, int error) {
  const Report report{.what = fmt::format("cannot write '{}'", path.string()),
                      .got = fmt::format("{} from {}", base::errno_text(error), call),
                      .fix = fix_of(error)};
  if (error == ENOSPC || error == EDQUOT) throw NoRoom(report);
  throw IoError(report, code_of(error));
}

// The lock keeps two processes from writing into one temporary file. If another writer renames the file after this
// process has opened it and before this process has locked it, the open file is the other writer's finished output. The
// loop then opens the temporary file again.
UniqueFd open_locked(const std::filesystem::path& path, const std::string& temporary) {
  for (;;) {
    UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd && errno == EINTR) continue;
    if (!fd) fail(path, "open", errno);
    if (base::try_lock(fd.get()).outcome == base::LockAttempt::Outcome::kHeldByAnother) {
      throw IoError(Report{.what = fmt::format("cannot write '{}'", path.string()),
                           .got = fmt::format("'{}' is locked by another process", temporary),
                           .fix = "write to another folder, or end the other job"},
                    ExitCode::kOutputLocked);
    }
    struct stat mine {};
    struct stat named {};
    if (::fstat(fd.get(), &mine) != 0) fail(path, "fstat", errno);
    if (::stat(temporary.c_str(), &named) != 0 || named.st_ino != mine.st_ino || named.st_dev != mine.st_dev) continue;
    if (::ftruncate(fd.get(), 0) != 0) fail(path, "ftruncate", errno);
    return fd;
  }
}

void sync_folder_of(const std::filesystem::path& path) {
  const int error = base::sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  if (error != 0) fail(path, "fsync of its folder", error);
}

// Follows symbolic links to the file that is to be written, so that the user's link is kept.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kMost = 40;  // the kernel's limit
  std::error_code error;
  for (int i = 0; i < kMost && std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);  // an absolute link replaces the path
  }
  return path;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, Hashed hashed)
    : path_(behind_links(std::move(path))),
      temporary_(path_.string() + ".tmp"),
      fd_(open_locked(path_, temporary_)),
      hashed_(hashed) {}

AtomicFile::~AtomicFile() {
  if (!fd_) return;
  struct stat mine {};
  struct stat named {};
  // On a file system without locks the name may now belong to another writer's file.
  const bool is_mine = ::fstat(fd_.get(), &mine) == 0 && ::lstat(temporary_.c_str(), &named) == 0 &&
                       named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
  if (is_mine) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  REIGEN_ASSERT(fd_, "write() after commit() on '{}'", path_.string());
  if (hashed_ == Hashed::kWhole) hash_.update(bytes);
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const auto done = ::write(fd_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(path_, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  // Makes the kernel start writing to the disk, so that the fsync at the end has little left to wait for. This is only
  // a hint; fsync reports the errors.
  if (bytes_ - started_ >= kStartWritingAt) {
    ::sync_file_range(fd_.get(), static_cast<off64_t>(started_), static_cast<off64_t>(bytes_ - started_),
                      SYNC_FILE_RANGE_WRITE);
    started_ = bytes_;
  }
}

void AtomicFile::commit() {
  REIGEN_ASSERT(fd_, "commit() twice on '{}'", path_.string());
  while (::fsync(fd_.get()) != 0) {
    if (errno == EINTR) continue;
    if (base::means_no_sync(errno)) break;
    fail(path_, "fsync", errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "rename", errno);
  fd_.reset();
  sync_folder_of(path_);
}

FileHash write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
  return file.hash();
}

FileHash write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  return write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace reigen::format
