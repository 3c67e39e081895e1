// Steps on a GPU. The host reads the loss and the norm of such a step only after it has enqueued the next step.
//
// A step is finished in two stages. After the next step was enqueued, the host reads the numbers of this rank, and
// starts an all_reduce that adds up the numbers of all ranks. One step later the host waits for this all_reduce. So the
// host waits neither for other ranks nor for the GPU, as long as the GPU is at most one step behind the host. If the
// gradients of a step are not finite, neither this step nor the steps after it change the weights (optim::DeviceNorm).
// So the weights are still those of this step when the host reads its numbers. There is one exception: a step whose
// loss is not finite, but whose gradients are finite, has changed the weights.
// Thread rule: used only by the thread of its rank. All ranks call the functions marked "Collective", in the same
// order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "reigen/data/loader.h"
#include "tensor/late_values.h"
#include "train/loop/losses.h"
#include "train/loop/own_loss.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/watch/device_times.h"
#include "train/watch/not_finite.h"

namespace reigen::train {

class LateSteps {
 public:
  LateSteps(Run& run, const TrainedModel& model, Losses& losses, NotFinite& not_finite, DeviceTimes& device)
      : run_(run), model_(model), losses_(losses), not_finite_(not_finite), device_(device) {}

  // Collective. Call it after all work of the step was enqueued and the step was counted. Finishes older steps.
  void add(Losses::Noted noted, const OwnLoss& own, const data::Batch& batch, Metrics::Step logged);
  // Does the same as add() for a step whose batch is left out. Such a step has no numbers to read.
  void add_left_out(Losses::Noted noted);
  // Collective. Finishes all steps. Does nothing if there are none.
  void finish();
  // Forgets all steps, because the run goes back to a checkpoint.
  void drop() { steps_.clear(); }

 private:
  struct Step {
    Losses::Noted noted = {};
    std::optional<data::Batch> batch = {};           // of this rank; not set if the batch is left out
    std::optional<tensor::LateValues> numbers = {};  // this rank's loss, and the values of optim::DeviceNorm
    double own = 0;                                  // the mean loss of this rank, after the numbers were read
    double norm = 0;                                 // for the error report, if the step is not finite
    std::shared_ptr<void> sums = {};                 // kSums numbers of this rank; sums over all ranks after `added`
    std::optional<Metrics::Step> logged = {};        // by the task
    Work added = {};

    bool was_read() const { return !numbers.has_value(); }
  };
  void read(Step& step);
  void end(Step& step);
  void finish(std::size_t unread, std::size_t unended);

  Run& run_;
  const TrainedModel& model_;
  Losses& losses_;
  NotFinite& not_finite_;
  DeviceTimes& device_;
  std::deque<Step> steps_;  // from the oldest step to the newest
};

}  // namespace reigen::train
