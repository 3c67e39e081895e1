// --run.trace 10:15: a timeline of some steps of the training loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "reigen/train/timeline.h"

namespace reigen::train {

struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 1;
};

// "10:15", or "10" for one step; steps count from 1. Throws InvalidArgument.
StepRange parse_step_range(const std::string& text);

class StepTrace {
 public:
  StepTrace(const Communicator& world, const StepRange& steps) : world_(world), steps_(steps) {}

  const StepRange& steps() const { return steps_; }

  // A step begins, `waited` seconds after the last one's end (for data). Outside of the range the others do nothing.
  void begin(std::int64_t step, double waited);
  // What went on until now, since the last lap or the step's beginning.
  void lap(const char* name);
  void end(const parallel::DataParallelBase& parallel);

  // Whether this was the last of the steps, and steps were traced that are not written yet.
  bool is_due(std::int64_t step) const { return timeline_ && step >= steps_.last; }
  bool has_steps() const { return timeline_.has_value(); }
  // Collective. Writes, forgets, and gives rank 0's table of buckets for people.
  std::string write(const std::filesystem::path& path);

 private:
  Communicator world_;
  StepRange steps_;
  std::optional<Timeline> timeline_;
  std::int64_t step_ = 0;
  std::int64_t first_ = 0;
  std::int64_t begin_ = 0;
  std::int64_t last_lap_ = 0;
};

}  // namespace reigen::train
