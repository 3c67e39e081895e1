// Forward and backward of a step as one CUDA graph (train.graph). The first steps are run operator by operator, and
// then the graph is captured. Later steps copy the batch to the memory that the graph reads, and start the graph. A
// batch of another size, such as the last one of an epoch, is run operator by operator again.
//
// The graph reads all numbers that differ between steps from memory of the GPU: the batch, the weights of its parts and
// the numbers of their terms. Norm, optimizer and checks come after the graph, as without it.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "reigen/data/loader.h"
#include "tensor/gpu/device_graph.h"
#include "train/loop/own_loss.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class StepGraph {
 public:
  StepGraph(Run& run, const RunData& data, TrainedModel& model) : run_(run), data_(data), model_(model) {}

  bool is_wanted() const { return run_.config.train.graph != "none"; }
  // Throws InvalidArgument (exit code 78, is_common()) if train.graph is not possible on this device or with these
  // ranks.
  void require_possible() const;
  // Whether run() is to be called for this batch: it is whole, and after the capture its tensors have the shapes and
  // types of the captured ones.
  bool takes(const data::Batch& batch);
  // Enqueues forward and backward of the batch. The first call captures the graph. Returns the sum of the losses, and
  // sets `.grad` of all parameters as backward does. Throws InvalidArgument if the task cannot be captured.
  OwnLoss run(const data::Batch& batch);
  // Forgets the graph, because the model goes.
  void drop();

 private:
  void capture(const data::Batch& batch);
  void enqueue(std::size_t part);
  void set_numbers(const data::Batch& batch);

  Run& run_;
  const RunData& data_;
  TrainedModel& model_;
  std::int64_t steps_before_ = 0;        // steps with a whole batch that were run operator by operator
  std::vector<data::MicroBatch> parts_;  // the memory that the graph reads
  std::vector<double> numbers_;          // weight and terms of each part, as they are in on_gpu_
  at::Tensor on_gpu_;
  at::Tensor sum_;                       // of the losses
  std::vector<at::Tensor> gradients_;    // of all parameters, in memory of the graph
  std::optional<Metrics::Step> logged_;  // by the task in the capture; a replay computes its tensors again
  std::optional<tensor::DeviceGraph> graph_;
};

}  // namespace reigen::train
