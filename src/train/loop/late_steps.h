// Steps on a GPU, whose losses and norms the host reads when it has already enqueued the next step.
//
// A step goes through two states. Its numbers come to this rank: the host reads them after the next step was enqueued.
// Then the ranks add up their numbers in a call that is started, and waited for one step later. So the host waits
// neither for the GPU, as long as the GPU has done the step before, nor for other ranks. A step whose numbers are not
// finite changes nothing, and neither do the steps after it (optim::DeviceNorm). So the weights are still those of this
// step when the host finds out. The exception is a loss that is not finite although its gradients are: its step has
// changed the weights.
// Thread rule: the thread of its rank. Every rank must call functions marked "Collective" at the same place.
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
#include "train/watch/not_finite.h"

namespace reigen::train {

class LateSteps {
 public:
  LateSteps(Run& run, const TrainedModel& model, Losses& losses, NotFinite& not_finite)
      : run_(run), model_(model), losses_(losses), not_finite_(not_finite) {}

  // Collective. Call it when all work of the step is enqueued and the step was counted. Finishes older steps.
  void add(Losses::Noted noted, const OwnLoss& own, const data::Batch& batch);
  // As add(), for a batch that is left out: there is nothing to read.
  void add_left_out(Losses::Noted noted);
  // Collective. Finishes all steps. Does nothing if there are none.
  void finish();
  // Forgets all steps, because the run goes back to a checkpoint.
  void drop() { steps_.clear(); }

 private:
  struct Step {
    Losses::Noted noted = {};
    std::optional<data::Batch> batch = {};           // of this rank; none: the batch is left out
    std::optional<tensor::LateValues> numbers = {};  // this rank's loss, and the values of optim::DeviceNorm
    double own = 0;                                  // the mean loss of this rank, after the numbers were read
    double norm = 0;                                 // for the report, if the step is not finite
    std::shared_ptr<void> sums = {};                 // after that: kSums numbers, of all ranks when `added` is done
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
  std::deque<Step> steps_;  // the oldest first; those that were read come before the others
};

}  // namespace reigen::train
