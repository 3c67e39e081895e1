// Whose it was that a step gave no number: which rank's, which parameter's.
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

  // Collective. Before the weights stepped; loss: this rank's. The step must not go on after it: where gradients are
  // averages by now, each rank computes its own once more.
  std::string of_step(double loss, const data::Batch& batch);
  // Collective. From the gradients that ranks have of their own.
  std::string of_own_gradients();
  // This rank's alone.
  std::string of_this_rank(double loss);

 private:
  void compute_alone(const data::Batch& batch);

  Run& run_;
  TrainedModel& model_;
};

}  // namespace reigen::train
