// The place where a container is written before it appears under its path, whole: a folder PATH.tmp, which one process
// at a time may use. A writer that was killed leaves it, and the next one removes what is in it. Thread rule: a Staging
// belongs to one thread.
#pragma once

#include <filesystem>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::container {

class Staging {
 public:
  // Throws IoError with exit code 73 if something is at the path and `force` is not set, or if another process writes
  // to it; with 77 or 74 if the folder cannot be made.
  Staging(std::filesystem::path target, bool force);
  ~Staging();                        // removes PATH.tmp
  Staging(const Staging&) = delete;  // two owners would remove one folder twice
  Staging& operator=(const Staging&) = delete;

  const std::filesystem::path& target() const { return target_; }
  // Where the caller writes the container: as a file, or as a folder that the caller makes.
  std::filesystem::path place() const { return temporary_ / "whole"; }
  // Syncs place() and everything in it, and moves it to the path in one step. Where two names cannot be exchanged (NFS)
  // and the target is or was a folder, there are two steps, and nothing is at the path between them. Throws IoError.
  void publish();

 private:
  // Where the old container is between the two steps.
  std::filesystem::path replaced() const { return temporary_ / "replaced"; }

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool force_;
  UniqueFd lock_;
};

}  // namespace reigen::container
