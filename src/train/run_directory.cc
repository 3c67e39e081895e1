#include "train/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <ctime>

#include "base/check.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

// An output that cannot be made is never a missing input (66).
[[noreturn]] void refuse(const std::string& what, int error) {
  const bool permission = error == EACCES || error == EPERM || error == EROFS;
  throw IoError(Report{.what = what,
                       .got = base::errno_text(error),
                       .expected = "a place where this user may write",
                       .fix = permission ? "choose another path or change its permissions"
                                         : "choose another path, e.g. --run.dir DIR"},
                permission ? ExitCode::kPermission : ExitCode::kIo);
}

bool holds_run(const fs::path& path) {
  for (const char* name : {"config.toml", "metrics.jsonl", "checkpoints", "model.safetensors"}) {
    std::error_code ignored;
    if (fs::exists(path / name, ignored)) return true;
  }
  return false;
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, bool may_hold_run) : path_(std::move(path)) {
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error)) {
    throw IoError(Report{.what = fmt::format("{} is to be the run's directory", path_.string()),
                         .got = "something else of that name",
                         .fix = "choose another --run.dir, or move it away"},
                  ExitCode::kOutputLocked);
  }
  fs::create_directories(path_, error);
  if (error) refuse(fmt::format("cannot create the run directory {}", path_.string()), error.value());
  lock_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) refuse(fmt::format("cannot open the run directory {}", path_.string()), errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw IoError(
        Report{.what = fmt::format("{} is in use by another run", path_.string()), .fix = "choose another --run.dir"},
        ExitCode::kOutputLocked);
  }
  if (!may_hold_run && holds_run(path_)) {
    throw IoError(Report{.what = fmt::format("{} holds a run already", path_.string()),
                         .fix = "go on with --run.resume true, or choose another --run.dir"},
                  ExitCode::kOutputLocked);
  }
  const fs::path probe = path_ / ".writable";
  require_writable(probe);
  fs::remove(probe, error);
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  // Never one that holds something.
  if (!path_.empty() && fs::remove(path_, ignored)) fs::remove(path_.parent_path(), ignored);
}

fs::path default_run_directory(const std::string& task) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  const std::string name = fmt::format("{}-{:%Y%m%d-%H%M%S}", task, local);
  fs::path path = fs::path("runs") / name;
  std::error_code error;
  fs::create_directories("runs", error);
  // Made here, so that two jobs of one second do not choose the same; what cannot be made is told by RunDirectory.
  for (int number = 2; !fs::create_directory(path, error) && !error; ++number)
    path = fs::path("runs") / fmt::format("{}-{}", name, number);
  return path;
}

void require_writable(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) refuse(fmt::format("cannot write {}", file.string()), errno);
}

}  // namespace reigen::train
