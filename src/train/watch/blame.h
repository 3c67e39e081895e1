// Finds the rank and the parameter that made the values of a step not finite.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

class Blame {
 public:
  Blame(Run& run, TrainedModel& model) : run_(run), model_(model) {}

  // Collective. Call it before the optimizer changes the weights. `loss` is the loss of this rank. Returns a text that
  // says on which ranks and in which parameters the values are not finite. If the gradients are averages already, each
  // rank computes its own gradients again. This overwrites the averages, so the optimizer must not step afterwards.
  std::string of_step(double loss, const data::Batch& batch);
  // Collective. Does the same as of_step() for the earlier step with the number `step` (from 1), whose gradients do not
  // exist any more. No later step may have changed the weights.
  std::string of_past_step(double loss, const data::Batch& batch, std::int64_t step);
  // Collective. Does the same as of_step() for gradients that are not averaged. Looks only at the gradients of each
  // rank.
  std::string of_own_gradients();
  // Does the same as of_step(), but looks at the loss, weights and gradients of this rank alone.
  std::string of_this_rank(double loss);

 private:
  std::string of(double loss, const data::Batch& batch, std::int64_t step, bool has_gradients);
  void compute_alone(const data::Batch& batch, std::int64_t step);

  Run& run_;
  TrainedModel& model_;
};

}  // namespace reigen::train
