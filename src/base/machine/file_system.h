// Operations that file systems support differently: locks, the syncing of folders, free space. Lustre without -o flock,
// NFS without lockd, autofs and some FUSE file systems have no locks. Each of these file systems reports the missing
// locks with a different errno.
// Thread rule: any thread. The functions keep no state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "reigen/base/unique_fd.h"

namespace reigen::base {

struct LockAttempt {
  enum class Outcome { kTaken, kHeldByAnother, kNoLocks, kFailed };
  Outcome outcome = Outcome::kTaken;
  int error = 0;  // the errno, unless the lock was taken
};

// Tries to take an exclusive flock() of the open file, without waiting. The lock ends when the descriptor is closed.
LockAttempt try_lock(int fd);

// A lock file in a folder. A job holds the file's lock as long as it uses the folder. The file contains "pid 123 on
// host", for the error message of another job that finds the file locked. The file is not removed when the job ends.
class LockFile {
 public:
  // Throws IoError if the file cannot be created, or if locking it fails on a file system that has locks.
  explicit LockFile(const std::filesystem::path& path);

  LockAttempt::Outcome outcome() const { return attempt_.outcome; }
  // A text for messages. After kHeldByAnother: the holder, or the path of the lock file if the holder is not known.
  // After kNoLocks: a warning that a second job is not kept out of the folder.
  const std::string& text() const { return text_; }
  bool is_new() const { return is_new_; }     // whether this object created the file
  UniqueFd take() { return std::move(fd_); }  // from now on the lock lives as long as the returned descriptor

 private:
  UniqueFd fd_;
  LockAttempt attempt_;
  std::string text_;
  bool is_new_ = false;
};

// Whether the errno of an fsync() means that the file system cannot sync this kind of file or folder. Such an errno
// does not mean that data were lost, but EIO does.
bool means_no_sync(int error);

// Calls fsync() for a folder. Returns 0, or the errno of the failure. Also returns 0 if the folder's file system cannot
// sync folders, or if this user may not read the folder.
int sync_folder(const std::filesystem::path& folder);

// The number of bytes that this user may still write in the folder; nothing if the file system does not report it.
std::optional<std::uint64_t> room_in(const std::filesystem::path& folder);

}  // namespace reigen::base
