#include "container/write/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/machine/file_system.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_to_write(const fs::path& path, const char* call, int error) {
  const Report report{.what = fmt::format("cannot write '{}'", path.string()),
                      .got = fmt::format("{} from {}", base::errno_text(error), call),
                      .expected = "a folder that may be written to",
                      .fix = error == ENOENT ? "create the folder first" : "choose another path"};
  if (error == ENOSPC || error == EDQUOT) throw NoRoom(report);
  const ExitCode code = base::exit_code_of_errno(error);
  throw IoError(report, code == ExitCode::kInputMissing ? ExitCode::kIo : code);
}

[[noreturn]] void fail_exists(const fs::path& path) {
  throw IoError(Report{.what = fmt::format("'{}' exists", path.string()),
                       .got = fs::is_directory(path) ? "a folder" : "a file",
                       .expected = "a path where nothing is",
                       .fix = "choose another path, or replace it by --force"},
                ExitCode::kOutputLocked);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// The folder may be removed by the process that had the lock, between open() and flock().
UniqueFd locked_folder(const fs::path& target, const fs::path& temporary) {
  for (;;) {
    if (::mkdir(temporary.c_str(), 0777) != 0 && errno != EEXIST) fail_to_write(target, "mkdir", errno);
    UniqueFd fd(::open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd && (errno == ENOENT || errno == EINTR)) continue;
    if (!fd) fail_to_write(target, "open", errno);
    if (base::try_lock(fd.get()).outcome == base::LockAttempt::Outcome::kHeldByAnother) {
      throw IoError(Report{.what = fmt::format("cannot write '{}'", target.string()),
                           .got = fmt::format("'{}' is locked by another process", temporary.string()),
                           .expected = "one writer",
                           .fix = "wait for the other process, or choose another path"},
                    ExitCode::kOutputLocked);
    }
    struct stat mine {};
    struct stat named {};
    if (::fstat(fd.get(), &mine) != 0) fail_to_write(target, "fstat", errno);
    if (::stat(temporary.c_str(), &named) != 0 || named.st_ino != mine.st_ino || named.st_dev != mine.st_dev) continue;
    return fd;
  }
}

void remove_content(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored); !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    std::error_code also_ignored;
    fs::remove_all(at->path(), also_ignored);
  }
}

void sync_file(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) fail_to_write(path, "open", errno);
  if (::fsync(fd.get()) != 0 && !base::means_no_sync(errno)) fail_to_write(path, "fsync", errno);
}

void sync_whole(const fs::path& path) {
  if (!fs::is_directory(path)) return sync_file(path);
  std::error_code failed;
  for (fs::directory_iterator at(path, failed); !failed && at != fs::directory_iterator(); at.increment(failed))
    sync_whole(at->path());
  if (failed) fail_to_write(path, "readdir", failed.value());
  if (const int error = base::sync_folder(path); error != 0) fail_to_write(path, "fsync", error);
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Replaces the target by `from` on a file system that cannot exchange two names, as NFS. A file replaces a file in one
// step. Everything else moves to `old` first, so for a moment nothing is at the target. Returns -1 and sets errno if
// it fails; then the target is as before.
int replace_in_turn(const fs::path& from, const fs::path& target, const fs::path& old) {
  if (::rename(from.c_str(), target.c_str()) == 0) return 0;
  const bool has_content = errno == ENOTEMPTY || errno == EEXIST;
  const bool is_of_other_kind = errno == EISDIR || errno == ENOTDIR;
  if (!has_content && !is_of_other_kind) return -1;
  if (::rename(target.c_str(), old.c_str()) != 0) return -1;
  if (::rename(from.c_str(), target.c_str()) == 0) return 0;
  const int error = errno;
  ::rename(old.c_str(), target.c_str());
  errno = error;
  return -1;
}

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

Staging::Staging(fs::path target, bool force)
    : target_(without_slash(target)), temporary_(target_.string() + ".tmp"), force_(force) {
  if (!force_ && is_there(target_)) fail_exists(target_);
  lock_ = locked_folder(target_, temporary_);
  // A process was killed while it replaced the target in two steps: what it replaced goes back.
  if (!is_there(target_) && is_there(replaced())) {
    std::error_code failed;
    fs::rename(replaced(), target_, failed);
    if (failed) fail_to_write(target_, "rename", failed.value());
  }
  if (!force_ && is_there(target_)) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
    fail_exists(target_);
  }
  remove_content(temporary_);
}

Staging::~Staging() {
  if (!lock_ || (!is_there(target_) && is_there(replaced()))) return;  // what was replaced could not go back
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void Staging::publish() {
  sync_whole(place());
  const std::string from = place().string();
  const bool replaces = is_there(target_);
  if (replaces && !force_) fail_exists(target_);
  // A folder cannot be renamed over one that has content, so the two change places. Then the old one is removed.
  const unsigned how = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  int result = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, target_.c_str(), how);
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {  // a file system without these forms, as NFS
    result = replaces ? replace_in_turn(place(), target_, replaced()) : ::rename(from.c_str(), target_.c_str());
  }
  if (result != 0 && errno == EEXIST) fail_exists(target_);
  if (result != 0) fail_to_write(target_, "rename", errno);
  if (const int error = base::sync_folder(parent_of(target_)); error != 0) fail_to_write(target_, "fsync", error);
}

}  // namespace reigen::container
