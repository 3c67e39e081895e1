// Finds the rank and the parameter because of which a step gave no number.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <string>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

class Blame {
 public:
  Blame(Run& run, TrainedModel& model) : run_(run), model_(model) {}

  // Collective. Call it before the weights step. loss: this rank's. If the gradients are averages by now, each rank
  // computes its own once more, so the step must not go on.
  std::string of_step(double loss, const data::Batch& batch);
  // Collective. Looks at the gradients that each rank has of its own.
  std::string of_own_gradients();
  // Looks at this rank alone.
  std::string of_this_rank(double loss);

 private:
  void compute_alone(const data::Batch& batch);

  Run& run_;
  TrainedModel& model_;
};

}  // namespace reigen::train
