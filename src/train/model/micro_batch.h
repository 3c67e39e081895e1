// A step's forward and backward for a part of its batch, on this rank.
// Thread rule: the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

// Sets LibTorch's generator for step run.done + 1. What the model draws (dropout) is then a function of seed, rank and
// step, so checkpoints need no state of it. Ranks that are threads share one generator, which is left alone.
void seed_step(const Run& run);

// The mean loss over the part's terms. A part without samples computes with a stand-in of weight 0.
at::Tensor loss_of(Run& run, const data::MicroBatch& part);

// Runs backward from mean times the part's weight in the batch, times the loss scale.
void backward(TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part);

}  // namespace reigen::train
