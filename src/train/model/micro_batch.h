// A step's forward and backward for a part of its batch, on this rank.
// Thread rule: the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

// What the model draws (dropout) in step run.done + 1 is a function of seed, rank and step, so nothing need be saved to
// go on. Ranks that are threads share one generator, which cannot be given to each.
void seed_step(const Run& run);

// The mean loss over the part's terms. A part without samples computes with a stand-in of weight 0.
at::Tensor loss_of(Run& run, const data::MicroBatch& part);

// Of `mean` by its weight in the batch, with the scale of the loss.
void backward(TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part);

}  // namespace reigen::train
