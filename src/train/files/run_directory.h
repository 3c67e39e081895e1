// The directory of a run: locks it for one process, and keeps track of the files that a start creates.
// Thread rule: used only by the thread of rank 0.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::train {

// The folders and files that a start created. Unless keep() is called, the destructor removes them, the newest first.
// It does not remove folders that are not empty, and paths at which there is a different file by now.
class MadeHere {
 public:
  MadeHere() = default;
  ~MadeHere();
  MadeHere(const MadeHere&) = delete;
  MadeHere& operator=(const MadeHere&) = delete;

  // Creates the folder and its missing parents. Throws IoError: with exit code 73 if a symbolic link on the path leads
  // nowhere, with 77 if permission is missing, with 74 for other errors.
  void make_folder(const std::filesystem::path& path);
  // Call it for a file or folder that this start has just created.
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
  // Creates the directory if it is missing and locks it for the lifetime of this object. Folders and files that it
  // creates are noted in `made`. Throws IoError with exit code 73 if another process trains in the directory (the text
  // names the process), or if the directory holds a run and `may_hold_run` is false. Throws it with 77 or 74 if the
  // directory cannot be written.
  RunDirectory(std::filesystem::path path, bool may_hold_run, MadeHere& made);

  const std::filesystem::path& path() const { return path_; }
  // A warning for the user if the file system has no locks; else empty.
  const std::string& warning() const { return warning_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
  std::string warning_;
};

// Creates runs/<task>-<date-time>, with a number added if this name exists. Called on one rank of a job.
std::filesystem::path default_run_directory(const std::string& task, MadeHere& made);

}  // namespace reigen::train
