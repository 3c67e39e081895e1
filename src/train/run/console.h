// What the user of a run reads: lines, and how far the run is. Rank 0 speaks for all; on the others nothing happens.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "train/run/progress.h"

namespace reigen::train {

class Console {
 public:
  // columns: of a terminal that shows a bar; 0: plain lines.
  Console(bool speaks, std::function<void(const std::string&)> write, int columns)
      : speaks_(speaks), write_(std::move(write)), columns_(columns) {}

  void say(const std::string& text);

  // From here on steps are shown. `write` and `columns` of the options are the console's.
  void begin_progress(ProgressOptions options);
  void show_step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s);
  // Time in which no steps are made.
  void exclude(Progress::Clock::duration duration);

 private:
  bool speaks_;
  std::function<void(const std::string&)> write_;
  int columns_;
  std::optional<Progress> progress_;
};

}  // namespace reigen::train
