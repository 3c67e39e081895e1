// --run.trace 10:15: records a timeline of some steps of the training loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "reigen/parallel/pipeline.h"
#include "reigen/train/timeline.h"

namespace reigen::train {

struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 1;
};

// Parses "10:15", or "10" for one step. The first step has the number 1. Throws InvalidArgument for any other text.
StepRange parse_step_range(const std::string& text);

class StepTrace {
 public:
  StepTrace(const Communicator& world, const StepRange& steps) : world_(world), steps_(steps) {}

  const StepRange& steps() const { return steps_; }

  // Call it at the beginning of each step. `waited` is the number of seconds for which the loop waited for the batch.
  // In steps outside of the range, lap() and end() do nothing.
  void begin(std::int64_t step, double waited);
  // Records the time since the last lap(), or since the beginning of the step, under this name.
  void lap(const char* name);
  // `pipeline`: the actions of its last step are spans inside the step. It may be empty.
  void end(const parallel::DataParallelBase& parallel, const parallel::Pipeline& pipeline);

  // Adds a span of the rank's GPU. Times are nanoseconds since 1970.
  void add_of_gpu(const char* name, std::int64_t begin, std::int64_t end) { timeline_->add_of_gpu(name, begin, end); }

  // Whether this step is the last of the range or a later one, and traced steps are not written yet.
  bool is_due(std::int64_t step) const { return timeline_ && step >= steps_.last; }
  bool has_steps() const { return timeline_.has_value(); }
  // Collective. Writes the timeline and drops it. Returns a text for people with rank 0's table of buckets.
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
