// Forward and backward of one micro-batch on this rank.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

// Sets the seed of LibTorch's generator for step run.done + 1. The model's random numbers (dropout) are then a function
// of seed, rank and step, so checkpoints need no generator state. Ranks that are threads share one generator, so no
// seed is set for them.
void seed_step(const Run& run, std::int64_t done);

// Returns the mean loss over the terms of the micro-batch. If this rank has no sample, the forward uses a stand-in
// sample of weight 0.
at::Tensor loss_of(Run& run, const data::MicroBatch& part);

// Forward and backward of all micro-batches of a batch in the pipeline of the model. Calls note(mean, terms) for the
// loss of each micro-batch, on the ranks of the last stage, and after_forward() after each forward of a stage. If the
// schedule of a file has more micro-batches, as in the last step of an epoch, further ones of weight 0 are added. In
// the first step it is checked that the model's forward computes nothing before its first unit.
void run_pipeline(Run& run, TrainedModel& model, std::vector<data::MicroBatch> parts,
                  const std::function<void(const at::Tensor& mean, std::int64_t terms)>& note,
                  const std::function<void()>& after_forward);

// Calls backward on `mean` times the weight of the micro-batch in the batch, times the loss scale. `mean` is the result
// of loss_of().
void backward(TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part);

}  // namespace reigen::train
