// The directory of a run: who may use it, and what goes on in it.
// Thread rule: rank 0's thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::train {

// What a start made itself, folders and files. Unless it is kept it is taken back, what was made last first: a folder
// only where it is empty, and nothing that has another under its name by then.
class MadeHere {
 public:
  MadeHere() = default;
  ~MadeHere();
  MadeHere(const MadeHere&) = delete;
  MadeHere& operator=(const MadeHere&) = delete;

  // Makes the folder and those above it that are not there. Throws IoError: 73 where a symbolic link on the way leads
  // nowhere, 77, 74.
  void make_folder(const std::filesystem::path& path);
  // The file or folder was made just now, by this start.
  void note(const std::filesystem::path& path);
  void keep() { made_.clear(); }

 private:
  struct One {
    std::filesystem::path path;
    dev_t device;
    ino_t inode;
  };
  std::vector<One> made_;
};

class RunDirectory {
 public:
  // Makes the directory when it is not there and locks it as long as this object lives. What is new goes into `made`.
  // Throws IoError: 73 when another process trains in it, naming it, or when it holds a run and `may_hold_run` is
  // false; 77 or 74 when it cannot be written.
  RunDirectory(std::filesystem::path path, bool may_hold_run, MadeHere& made);

  const std::filesystem::path& path() const { return path_; }
  // Where the file system has no locks: a warning for the user. Else empty.
  const std::string& warning() const { return warning_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
  std::string warning_;
};

// Makes runs/<task>-<date-time>, with a number when that exists. For one rank of a job.
std::filesystem::path default_run_directory(const std::string& task, MadeHere& made);

}  // namespace reigen::train
