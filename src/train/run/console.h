// The output of a run for its user: lines and progress. Rank 0 prints for all ranks; on the other ranks calls do
// nothing.
// Thread rule: used by one thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "train/run/progress.h"

namespace reigen::train {

class Console {
 public:
  // `speaks` says whether this rank prints. `columns` is the width of the terminal, for a progress bar; 0 means plain
  // lines.
  Console(bool speaks, std::function<void(const std::string&)> write, int columns)
      : speaks_(speaks), write_(std::move(write)), columns_(columns) {}

  void say(const std::string& text);

  // Starts to show steps. The console sets `write` and `columns` of the options to its own.
  void begin_progress(ProgressOptions options);
  void show_step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s);
  // Excludes time without steps from the estimate of the remaining time.
  void exclude(Progress::Clock::duration duration);

 private:
  bool speaks_;
  std::function<void(const std::string&)> write_;
  int columns_;
  std::optional<Progress> progress_;
};

}  // namespace reigen::train
