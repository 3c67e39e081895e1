// Trainer::predict(): runs predict_step() over a dataset, and brings the results of all ranks to rank 0.
// Thread rule: used only by its rank's thread.
#pragma once

#include <vector>

#include "reigen/data/dataset.h"
#include "train/loop/evaluation.h"
#include "train/run/run.h"

namespace reigen::train {

// Collective. In the order of the samples on rank 0, nothing on the other ranks. Throws InvalidArgument for results
// without a row for each sample, and for results whose names, types or shapes differ between batches; with mesh.pp too.
std::vector<data::NamedTensor> predictions_of(Run& run, Evaluation& evaluation, const data::Dataset& data);

}  // namespace reigen::train
