// The directory of a run: who may use it, and what goes on in it.
// Thread rule: rank 0's thread.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "reigen/base/unique_fd.h"

namespace reigen::train {

class RunDirectory {
 public:
  // Creates the directory when it is not there and locks it as long as this object lives.
  // Throws IoError: 73 when another process trains in it, or when it holds a run and `may_hold_run` is false; 77 or 74
  // when it cannot be written.
  RunDirectory(std::filesystem::path path, bool may_hold_run);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

// Takes back a directory of default_run_directory() when its run did not start, and runs/ if that leaves it empty.
// What is in it is kept.
class NewDirectory {
 public:
  explicit NewDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  void keep() { path_.clear(); }

 private:
  std::filesystem::path path_;
};

// Makes runs/<task>-<date-time>, with a number when that exists. For one rank of a job.
std::filesystem::path default_run_directory(const std::string& task);

// Throws IoError, 77 or 74, when the file cannot be created or written. Keeps what is in it.
void require_writable(const std::filesystem::path& file);

}  // namespace reigen::train
