// What --run.plan prints: the learning rate of a whole run, without its data and its ranks.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/train/config.h"

namespace reigen::train {

struct PlanOf {
  std::string name = {};            // the recipe's
  std::int64_t samples = 0;         // of an epoch, if data.limit does not say less; 0: not known
  std::int64_t batch_per_rank = 0;  // counts if train.global_batch is not set
  int ranks = 1;
};

// A line for the run, then one for each step where the rate begins to change, leaps, or has its last change, and one
// for each epoch in which it changes all the time. Throws InvalidArgument with exit code 78 if the number of samples is
// not known, or the mesh does not fit the ranks.
std::string plan_of(const Config& config, const PlanOf& of);

}  // namespace reigen::train
