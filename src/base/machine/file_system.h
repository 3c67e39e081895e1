// What file systems differ in: locks, the syncing of folders, how full they are. Lustre without -o flock, NFS without
// lockd, autofs and some FUSE have no locks; each says so by an errno of its own.
// Thread rule: pure functions of the kernel's state.
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
  int error = 0;  // where there are no locks, or it failed: what the file system said
};

// An exclusive flock() of the open file, without waiting. It ends when the descriptor is closed.
LockAttempt try_lock(int fd);

// A file that a job locks for as long as it uses the folder around it. It holds "pid 123 on host", for those who come
// too late, and stays when the job ends.
class LockFile {
 public:
  // Throws IoError where the file cannot be made, or its lock fails on a file system that has them.
  explicit LockFile(const std::filesystem::path& path);

  LockAttempt::Outcome outcome() const { return attempt_.outcome; }
  // Held by another: who, as far as it is known. No locks: the warning that two jobs are not kept apart.
  const std::string& text() const { return text_; }
  bool is_new() const { return is_new_; }     // made by this object
  UniqueFd take() { return std::move(fd_); }  // the lock is the descriptor's from now on

 private:
  UniqueFd fd_;
  LockAttempt attempt_;
  std::string text_;
  bool is_new_ = false;
};

// Of the errno of an fsync(): the file system does not sync such a thing. Nothing is known to be lost, unlike with EIO.
bool means_no_sync(int error);

// fsync() of a folder, where its file system has that and this user may read it. Returns the errno of what went wrong;
// 0: nothing.
int sync_folder(const std::filesystem::path& folder);

// Bytes that this user may still write there; nothing where the file system does not tell.
std::optional<std::uint64_t> room_in(const std::filesystem::path& folder);

}  // namespace reigen::base
