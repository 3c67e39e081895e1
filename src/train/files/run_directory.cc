#include "train/files/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <optional>

#include "base/check.h"
#include "base/machine/file_system.h"
#include "reigen/format/atomic_file.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLock = ".lock";

// Throws the error for an output that cannot be created. Its exit code is never 66, which means a missing input.
[[noreturn]] void refuse(const std::string& what, int error) {
  const bool permission = error == EACCES || error == EPERM || error == EROFS;
  const bool full = error == ENOSPC || error == EDQUOT;
  const Report report{.what = what,
                      .got = base::errno_text(error),
                      .expected = full ? "a place with room" : "a place where this user may write",
                      .fix = permission ? "choose another path or change its permissions"
                             : full     ? "free space, or choose another path, e.g. --run.dir DIR"
                                        : "choose another path, e.g. --run.dir DIR"};
  if (full) throw NoRoom(report);
  throw IoError(report, permission ? ExitCode::kPermission : ExitCode::kIo);
}

bool holds_run(const fs::path& path) {
  for (const char* name : {"config.toml", "metrics.jsonl", "checkpoints", "model.safetensors"}) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(path / name, ignored))) return true;
  }
  return false;
}

bool is_link(const fs::path& path) {
  std::error_code ignored;
  return fs::is_symlink(fs::symlink_status(path, ignored));
}

// Tests whether the folder is writable by creating a file under a new name.
void require_writable_folder(const fs::path& path) {
  std::string probe = (path / ".writable_XXXXXX").string();
  const UniqueFd fd(::mkostemp(probe.data(), O_CLOEXEC));
  if (!fd) refuse(fmt::format("cannot write in {}", path.string()), errno);
  ::unlink(probe.c_str());
}

}  // namespace

MadeHere::~MadeHere() {
  for (auto one = made_.rbegin(); one != made_.rend(); ++one) {
    struct stat now {};
    if (::lstat(one->path.c_str(), &now) != 0 || now.st_dev != one->device || now.st_ino != one->inode) continue;
    if (S_ISDIR(now.st_mode))
      ::rmdir(one->path.c_str());  // fails if the folder is not empty
    else
      ::unlink(one->path.c_str());
  }
}

void MadeHere::note(const fs::path& path) {
  struct stat now {};
  const fs::path place = fs::absolute(path);  // absolute, because the working directory may change later
  if (::lstat(place.c_str(), &now) == 0) made_.push_back({place, now.st_dev, now.st_ino});
}

void MadeHere::make_folder(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return;
  const fs::path place = path.has_filename() ? path : path.parent_path();  // with a final slash, is_link() follows it
  if (is_link(place)) {
    throw IoError(
        Report{.what = fmt::format("{} is to be a directory", place.string()),
               .got = fmt::format("a symbolic link that leads nowhere, to {}", fs::read_symlink(place, error).string()),
               .expected = "a directory, or a link to one that is there",
               .fix = "mount or make what it leads to, or choose another --run.dir"},
        ExitCode::kOutputLocked);
  }
  make_folder(place.parent_path());
  if (::mkdir(place.c_str(), 0777) == 0) return note(place);
  const int failed = errno;
  if (failed == EEXIST && fs::is_directory(place, error)) return;  // another job made it meanwhile
  refuse(fmt::format("cannot create the run directory {}", place.string()), failed == EEXIST ? ENOTDIR : failed);
}

RunDirectory::RunDirectory(fs::path path, bool may_hold_run, MadeHere& made) : path_(std::move(path)) {
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error)) {
    throw IoError(Report{.what = fmt::format("{} is to be the run's directory", path_.string()),
                         .got = "something else of that name",
                         .fix = "choose another --run.dir, or move it away"},
                  ExitCode::kOutputLocked);
  }
  made.make_folder(path_);
  require_writable_folder(path_);
  base::LockFile lock(path_ / kLock);
  if (lock.outcome() == base::LockAttempt::Outcome::kHeldByAnother) {
    throw IoError(Report{.what = fmt::format("{} is in use by another run", path_.string()),
                         .got = lock.text(),
                         .fix = "choose another --run.dir, or end that run"},
                  ExitCode::kOutputLocked);
  }
  if (lock.outcome() == base::LockAttempt::Outcome::kNoLocks) warning_ = lock.text();
  lock_ = lock.take();
  if (!may_hold_run && holds_run(path_)) {
    // The lock file is removed while this process holds the lock. After that, the file may belong to another job.
    if (lock.is_new()) ::unlink((path_ / kLock).c_str());
    throw IoError(Report{.what = fmt::format("{} holds a run already", path_.string()),
                         .fix = "go on with --run.resume true, or choose another --run.dir"},
                  ExitCode::kOutputLocked);
  }
  if (lock.is_new()) made.note(path_ / kLock);
}

fs::path default_run_directory(const std::string& task, MadeHere& made) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  const std::string name = fmt::format("{}-{:%Y%m%d-%H%M%S}", task, local);
  made.make_folder("runs");
  // The directory is created here, so that two jobs that start in the same second do not choose the same name.
  for (int number = 1;; ++number) {
    fs::path path = fs::path("runs") / (number == 1 ? name : fmt::format("{}-{}", name, number));
    if (::mkdir(path.c_str(), 0777) == 0) {
      made.note(path);
      return path;
    }
    if (errno != EEXIST) refuse(fmt::format("cannot create the run directory {}", path.string()), errno);
  }
}

}  // namespace reigen::train
