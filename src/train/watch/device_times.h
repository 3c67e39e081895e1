// The times that the phases of a step take on the rank's GPU. Events on LibTorch's current stream mark the ends of the
// phases. The host does not wait for the events, so the times of a step are known only after the step.
//
// A phase also contains the time in which the stream waits: for other ranks, or for the host to enqueue more work.
// Nothing is measured on the CPU, and the phases of a pipeline (mesh.pp) are not: its forwards and backwards alternate.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/watch/watcher.h"

namespace reigen::train {

class DeviceTimes : public Watcher {
 public:
  struct Span {
    Phase phase = Phase::kData;
    std::int64_t begin = 0;  // nanoseconds since 1970
    std::int64_t end = 0;
  };

  // `times`: gets the times of each step as soon as they are known.
  DeviceTimes(const Run& run, StepTimes& times) : run_(run), times_(times) {}

  void begin_step(std::int64_t step, const data::Batch& batch, double waited) override;
  void end_phase(Phase phase) override;
  void abandon_step() override;

  // Takes the times of the steps up to `step` that the GPU has ended. Returns those of `step`, if they are known.
  std::optional<PhaseTimes> of(std::int64_t step);
  // Waits until the GPU has ended all steps, and takes their times.
  void finish();
  // Forgets the numbers of all steps, because the run goes back to a checkpoint and makes some of them again. Waits as
  // finish() does.
  void begin_again();

  // Keeps the phases of the steps that begin from now on as spans of time. Waits until the GPU has done all its work,
  // because only then the clocks of the GPU and of the host can be compared.
  void begin_spans();
  // Waits until the GPU has ended all steps. Returns their spans, and ends what begin_spans() has begun.
  std::vector<Span> end_spans();

 private:
  struct Mark {
    Phase phase = Phase::kData;  // that has ended here
    std::unique_ptr<device::Event> event;
  };
  struct Step {
    std::int64_t step = 0;
    std::size_t place = 0;         // in times_
    std::vector<Mark> marks = {};  // the first is at the beginning of the step
  };
  std::unique_ptr<device::Event> mark();
  void take(Step step);

  const Run& run_;
  StepTimes& times_;
  std::deque<Step> steps_;                                 // whose times are not known yet
  std::deque<std::pair<std::int64_t, PhaseTimes>> known_;  // of the last steps, by number
  std::vector<std::unique_ptr<device::Event>> unused_;
  std::unique_ptr<device::Event> origin_;  // set while spans are kept
  std::int64_t origin_time_ = 0;           // of origin_, in nanoseconds since 1970
  std::vector<Span> spans_;
};

}  // namespace reigen::train
