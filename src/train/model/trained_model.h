// The model of a run with its data_parallel wrapper, its optimizer and its activation checkpointing. make() is called
// at the start of a run and again after a rollback. Before make() the model is the task's bare module.
// Thread rule: used only by the thread of its rank. All ranks call the functions marked "Collective", in the same
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/tensor/tensor_files.h"
#include "train/model/first_weights.h"
#include "train/model/memory_use.h"
#include "train/optimizer/optimizers.h"
#include "train/run/run.h"

namespace reigen::train {

class TrainedModel {
 public:
  explicit TrainedModel(Run& run) : run_(run) {}

  struct Start {
    const checkpoint::Checkpoint* from = nullptr;  // null means initial values from the seed
    std::string other_strategy = {};               // why the checkpoint's strategy state does not fit; empty if it fits
    std::int64_t global_batch = 0;
    std::int64_t samples_per_step = 0;
  };
  // Collective. Makes wrapper and optimizer, and loads the checkpoint if there is one. Throws the errors that
  // Trainer::fit() lists, with the same exit code on every rank.
  void make(const Start& start);
  // Removes wrapper and optimizer, so that the module is bare again. Drops gradients that no step has used.
  void release();
  bool is_made() const { return optimizers_.has_value(); }

  // The module with the parameters of this rank: the task's module, or this rank's stages of it. Its forward is that of
  // the task's module.
  torch::nn::Module& module() const { return pipeline_ ? pipeline_.module() : run_.task.module(); }
  // The pipeline of mesh.pp; there is none without it.
  const parallel::Pipeline& pipeline() const { return pipeline_; }
  // The number of micro-batches in the file of mesh.schedule; 0 if there is no file.
  int micro_batches_of_file() const { return micro_batches_of_file_; }
  // How ranks divide layers with mesh.tp; empty without it.
  const parallel::TensorParallel& divided() const { return divided_; }
  // How ranks divide sequences with mesh.cp; empty without it.
  const parallel::ContextParallel& context() const { return context_; }
  // parallel(), optimizers() and optimization() may be called only after make(). optimization() is the first of the
  // optimizers, the only one unless the task is a ManualTask.
  parallel::DataParallelBase& parallel() { return *parallel_; }
  const parallel::DataParallelBase& parallel() const { return *parallel_; }
  Optimizers& optimizers() { return *optimizers_; }
  const Optimizers& optimizers() const { return *optimizers_; }
  Optimization& optimization() { return optimizers_->first(); }
  const Optimization& optimization() const { return optimizers_->first(); }

  // Whether each rank steps with its own gradients. If it does, the ranks do not add up their losses in each step. One
  // call adds up the losses of several steps over all ranks (Losses::add_up_late()).
  bool ranks_differ() const { return parallel_ && parallel_->ranks_differ(); }
  // Whether weights are sharded over a network, so that no rank has all of them between steps.
  bool gathers() const { return parallel_ && parallel_->gathers(); }
  // Whether no rank has all weights: they are sharded over a network, or ranks divide the model (mesh.tp, mesh.pp).
  bool is_in_parts() const { return gathers() || run_.divides_model(); }

  // Call it after a backward: from now on the ranks may differ again, so settle() has work to do.
  void note_step() { settled_ = false; }
  // Collective. Makes model and optimizer state equal on all ranks in the middle of a run: tensors that differ become
  // their mean over the ranks. A second call after the same step does nothing, because rounding can make the mean of
  // three equal numbers differ from these numbers.
  void settle();

  // The state of optimizer and strategy that checkpoints save.
  std::vector<tensor::NamedTensor> state() const;
  // Bytes of all weights of the model, as if one rank held them all.
  std::int64_t whole_weights() const;
  // Seconds that this rank has spent so far in waiting for other ranks and in calls that exchange weights with them.
  double seconds_met() const;
  // Names and sizes of the layout's axes, for checkpoints.
  const std::vector<std::pair<std::string, std::int64_t>>& mesh() const { return mesh_; }
  // The bytes that the layout predicts for this rank.
  const MemoryUse& memory_of_layout() const { return memory_; }
  // The bytes that the whole model takes in one process.
  const MemoryUse& memory_alone() const { return memory_alone_; }

 private:
  void set_values(const Start& start);
  void wrap(const Start& start);
  void make_optimizers(const Start& start);
  void load_state(const Start& start);

  Run& run_;
  std::unique_ptr<nn::ActivationCheckpoint> activations_;
  parallel::Pipeline pipeline_;
  int micro_batches_of_file_ = 0;
  parallel::TensorParallel divided_;   // with mesh.tp
  parallel::ContextParallel context_;  // with mesh.cp
  std::optional<parallel::DataParallelBase> parallel_;
  std::optional<Optimizers> optimizers_;
  std::vector<std::pair<std::string, std::int64_t>> mesh_;
  MemoryUse memory_;
  MemoryUse memory_alone_;
  std::optional<FirstWeights> first_weights_;  // of run.weights, until the model has its values
  bool without_memory_ = false;                // whether the model was made without memory for its weights
  bool settled_ = false;                       // settle() was called after the last step
};

}  // namespace reigen::train
