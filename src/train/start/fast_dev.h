// run.fast_dev: a short run of everything, which leaves nothing.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <filesystem>

#include "train/run/run.h"

namespace reigen::train {

class FastDev {
 public:
  FastDev() = default;
  ~FastDev();                        // removes the folder
  FastDev(const FastDev&) = delete;  // the folder has one owner
  FastDev& operator=(const FastDev&) = delete;

  // Makes the run short, without loggers and checkpoints, in a temporary folder.
  void begin(Run& run);

 private:
  std::filesystem::path folder_;
};

}  // namespace reigen::train
