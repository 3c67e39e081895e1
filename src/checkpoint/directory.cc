#include "checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/file_system.h"
#include "base/text.h"
#include "reigen/base/unique_fd.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/format/atomic_file.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "step_";
constexpr const char* kHidden = ".unfinished_";
constexpr const char* kLock = ".lock";
constexpr const char* kSetAside = "set_aside";
constexpr const char* kUnreadable = "unreadable";

[[noreturn]] void fail(const std::string& what, int error) {
  const std::string text = fmt::format("{}: {}", what, base::errno_text(error));
  if (error == ENOSPC || error == EDQUOT) throw NoRoom(text);
  throw IoError(text, base::exit_code_of_errno(error));
}

bool looks_whole(const fs::path& path) {
  try {
    const Checkpoint checkpoint(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Returns false if the checkpoint cannot be read now. A damaged checkpoint can be read.
bool can_be_looked_at(const fs::path& path) {
  try {
    const Checkpoint checkpoint(path);
  } catch (const IoError&) {
    return false;
  } catch (const Error&) {  // damaged, but readable
  }
  return true;
}

// Renames the directory before deleting it, so that nobody takes a half-deleted checkpoint for a damaged one.
void remove_checkpoint(const fs::path& path) {
  const fs::path hidden = path.parent_path() / (kHidden + path.filename().string());
  std::error_code ignored;
  fs::remove_all(hidden, ignored);
  fs::rename(path, hidden, ignored);
  fs::remove_all(hidden, ignored);
}

}  // namespace

std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  return base::parse<std::int64_t>(std::string_view(name).substr(std::string_view(kPrefix).size()));
}

namespace {

// The name that an old checkpoint has for a moment while publish() replaces this checkpoint.
std::string interim_name_of(std::int64_t step) { return fmt::format("{}{:018}", kPrefix, step); }

}  // namespace

std::string name_of(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

fs::path hidden_path_of(const fs::path& directory, std::int64_t step) { return directory / (kHidden + name_of(step)); }

void make_directories(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const fs::path parent = fs::absolute(path).lexically_normal().parent_path();
  if (parent != path) make_directories(parent);
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    throw IoError(
        Report{.what = fmt::format("cannot create {}", path.string()),
               .got = fmt::format("a symbolic link that leads nowhere, to {}", fs::read_symlink(path, error).string()),
               .fix = "mount or make what it leads to, or remove the link"});
  }
  if (fs::exists(path, error)) {
    throw IoError(Report{.what = fmt::format("cannot create the directory {}", path.string()),
                         .got = "a file with this name",
                         .fix = "choose another directory"},
                  ExitCode::kOutputLocked);
  }
  fs::create_directory(path, error);
  if (error) fail(fmt::format("cannot create {}", path.string()), error.value());
  sync_directory(parent);  // else a crash could remove the directory with everything that was fsynced in it
}

void sync_directory(const fs::path& path) {
  const int error = base::sync_folder(path);
  if (error != 0) fail(fmt::format("cannot sync {}", path.string()), error);
}

namespace {

// True for the names that save() gives to checkpoints. False for other names, even if they begin with "step_".
bool is_our_name(const std::string& name) {
  const std::optional<std::int64_t> step = step_of(name);
  return step && (name == name_of(*step) || name == interim_name_of(*step));
}

}  // namespace

void remove_unfinished(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kHidden)) continue;
    const std::string hidden = name.substr(std::string_view(kHidden).size());
    if (is_our_name(hidden) || hidden == kSetAside) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

void require_room(const fs::path& directory, std::uint64_t bytes) {
  const std::optional<std::uint64_t> free = base::room_in(directory);
  if (!free || *free >= bytes) return;  // if the free space is not known, a write fails when the disk is full
  std::error_code ignored;
  throw NoRoom(Report{.what = fmt::format("no room for a checkpoint in {}", directory.string()),
                      .got = fmt::format("{} bytes free", *free),
                      .expected = fmt::format("{} bytes, with its headers and what the file system needs", bytes),
                      .fix = fs::exists(set_aside_path(directory), ignored)
                                 ? fmt::format("free space: newer checkpoints, which the run gave up, are in {}",
                                               set_aside_path(directory).string())
                                 : "free space, keep fewer checkpoints, or write elsewhere"});
}

namespace {

// The bytes that deleting the checkpoint would free; 0 if it is a symbolic link.
std::uint64_t bytes_below(const fs::path& path) {
  std::uint64_t bytes = 0;
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) return 0;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const std::uint64_t size = entry->is_symlink(unknown) ? 0 : entry->file_size(unknown);
    if (!unknown) bytes += size;
  }
  return bytes;
}

}  // namespace

std::vector<std::int64_t> make_room(const fs::path& directory, std::uint64_t bytes,
                                    std::optional<std::int64_t> spared) {
  std::vector<std::int64_t> gone;
  const std::optional<std::uint64_t> free = base::room_in(directory);
  if (!free || *free >= bytes) return gone;
  std::vector<fs::path> all = list(directory);
  std::reverse(all.begin(), all.end());
  std::erase_if(all, [&](const fs::path& path) {
    const bool is_spared = spared && step_of(path).value_or(*spared) >= *spared;
    return is_spared || !is_our_name(path.filename().string());
  });
  std::uint64_t possible = *free;
  for (const fs::path& path : all) possible += bytes_below(path);
  if (possible < bytes) return gone;
  for (const fs::path& path : all) {
    if (base::room_in(directory).value_or(bytes) >= bytes) break;
    if (bytes_below(path) == 0) continue;
    remove_checkpoint(path);
    gone.push_back(step_of(path).value_or(0));
  }
  return gone;
}

void publish(const fs::path& hidden, const fs::path& target) {
  if (::rename(hidden.c_str(), target.c_str()) != 0) {
    const int error = errno;
    if (error != ENOTEMPTY && error != EEXIST) fail(fmt::format("cannot rename {}", hidden.string()), error);
    // RENAME_EXCHANGE swaps both names in one step. Some file systems (NFS) cannot swap names. On these, the old
    // checkpoint has its interim name until the new checkpoint has replaced it. Readers find the old checkpoint under
    // the interim name, because step_of() finds the same step in both names.
    const bool exchanged = ::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
    if (!exchanged) {
      const fs::path old = target.parent_path() / interim_name_of(step_of(target).value_or(0));
      remove_checkpoint(old);
      REIGEN_SYSCALL(::rename(target.c_str(), old.c_str()));
      REIGEN_SYSCALL(::rename(hidden.c_str(), target.c_str()));
      sync_directory(target.parent_path());
      remove_checkpoint(old);
    }
    sync_directory(target.parent_path());
    std::error_code ignored;
    fs::remove_all(hidden, ignored);
  }
  sync_directory(target.parent_path());
}

void retain(const fs::path& directory, std::int64_t keep, const fs::path& written) {
  std::int64_t whole = 1;
  for (const fs::path& path : list(directory)) {
    if (path.filename() == written.filename()) continue;
    if (whole >= keep) {
      if (is_our_name(path.filename().string())) remove_checkpoint(path);
    } else if (looks_whole(path)) {
      ++whole;
    }
  }
}

Unfinished::~Unfinished() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

std::vector<fs::path> list(const fs::path& directory) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) continue;
    if (const auto step = step_of(entry->path())) found.emplace_back(*step, entry->path());
  }
  if (error == std::errc::not_a_directory) {
    throw IoError(Report{.what = fmt::format("{} is no checkpoint", directory.string()),
                         .got = "a file",
                         .expected = "step_N, or the directory of a run or of checkpoints",
                         .fix = "give the directory; `reigen checkpoint inspect` looks at single files"},
                  ExitCode::kInputMissing);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError(fmt::format("cannot list {}: {}", directory.string(), base::errno_text(error.value())),
                  base::exit_code_of_errno(error.value()));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path set_aside_path(const fs::path& directory) { return directory / kSetAside; }

std::vector<fs::path> set_aside_after(const fs::path& directory, std::int64_t step,
                                      const std::vector<fs::path>& unreadable) {
  std::vector<fs::path> moved;
  for (const fs::path& path : list(directory)) {
    if (step_of(path).value_or(step) <= step) break;
    const bool stays =
        std::find(unreadable.begin(), unreadable.end(), path) != unreadable.end() || !can_be_looked_at(path);
    const fs::path folder = stays ? directory / kUnreadable : set_aside_path(directory);
    make_directories(folder);
    fs::path place = folder / path.filename();
    if (stays) {
      for (int i = 2; fs::exists(fs::symlink_status(place)); ++i)
        place = folder / fmt::format("{}_{}", path.filename().string(), i);
    } else {
      remove_checkpoint(place);  // an older checkpoint of this step that was set aside before
    }
    REIGEN_SYSCALL(::rename(path.c_str(), place.c_str()));
    sync_directory(folder);
    moved.push_back(place);
  }
  if (!moved.empty()) sync_directory(directory);
  return moved;
}

namespace {

// True for names such as "metrics_of_step_00000008.jsonl". A run that resumes from an older checkpoint sets the newer
// checkpoints aside, and writes such a file next to them.
bool are_lines_of_a_future(std::string_view name) {
  constexpr std::string_view kFront = "metrics_of_";
  constexpr std::string_view kEnd = ".jsonl";
  if (!name.starts_with(kFront) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kFront.size());
  name.remove_suffix(kEnd.size());
  return step_of(fs::path(name)).has_value();
}

}  // namespace

void drop_set_aside(const fs::path& directory, std::int64_t step) {
  const fs::path aside = set_aside_path(directory);
  std::error_code ignored;
  if (!fs::exists(aside, ignored)) return;
  bool is_over = true;
  for (const fs::path& path : list(aside)) {
    if (!is_our_name(path.filename().string())) continue;
    if (step_of(path).value_or(step) <= step)
      remove_checkpoint(path);
    else
      is_over = false;
  }
  if (!is_over) return;
  remove_unfinished(aside);
  std::vector<fs::path> lines;
  for (const auto& entry : fs::directory_iterator(aside, ignored)) {
    if (are_lines_of_a_future(entry.path().filename().string())) lines.push_back(entry.path());
  }
  for (const fs::path& path : lines) ::unlink(path.c_str());
  ::rmdir(aside.c_str());  // fails if the folder contains a file of the user
}

DirectoryLock::DirectoryLock(const fs::path& directory, bool warns_without_locks) {
  make_directories(directory);
  base::LockFile lock(directory / kLock);
  if (lock.outcome() == base::LockAttempt::Outcome::kHeldByAnother) {
    throw IoError(Report{.what = fmt::format("{} is written by another job", directory.string()),
                         .got = lock.text(),
                         .fix = "write to another directory, or end the other job"},
                  ExitCode::kOutputLocked);
  }
  const bool has_locks = lock.outcome() == base::LockAttempt::Outcome::kTaken;
  if (!has_locks && warns_without_locks) base::log_warning("{}", lock.text());
  fd_ = lock.take();
}

DirectoryLock::~DirectoryLock() = default;

}  // namespace reigen::checkpoint
