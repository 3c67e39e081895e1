// The model of a run with its data_parallel wrapper, its optimizer and its activation checkpointing. make() is called
// at the start of a run and again after a rollback. Without it the model is the task's bare module. Thread rule: the
// thread of its rank. What is marked collective every rank calls at the same place.
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
#include "train/model/memory_use.h"
#include "train/model/optimization.h"
#include "train/run/run.h"

namespace reigen::train {

class TrainedModel {
 public:
  explicit TrainedModel(Run& run) : run_(run) {}

  struct Start {
    const checkpoint::Checkpoint* from = nullptr;  // null: values from the seed
    std::string other_strategy = {};               // why its strategy's state is not for this run; empty: it is
    std::int64_t global_batch = 0;
    std::int64_t samples_per_step = 0;
  };
  // Collective. Throws as Trainer::fit.
  void make(const Start& start);
  // The module is bare again; gradients that wait are dropped.
  void release();
  bool is_made() const { return optimization_.has_value(); }

  torch::nn::Module& module() const { return run_.task.module(); }
  // While it is made:
  parallel::DataParallelBase& parallel() { return *parallel_; }
  const parallel::DataParallelBase& parallel() const { return *parallel_; }
  Optimization& optimization() { return *optimization_; }
  const Optimization& optimization() const { return *optimization_; }

  // Whether ranks step by themselves. Then their losses are added up late.
  bool ranks_differ() const { return parallel_ && parallel_->ranks_differ(); }
  // Whether no rank has all weights between steps.
  bool gathers() const { return parallel_ && parallel_->gathers(); }

  // Gradients were made: what settle() brought together may differ from here on.
  void note_step() { settled_ = false; }
  // Collective. One model and one state of the optimizer on all ranks, in the middle of a run: their mean where they
  // differ. Nothing happens a second time after one step: the mean of three equal numbers need not be that number.
  void settle();

  // What the optimizer and the strategy remember, for checkpoints.
  std::vector<tensor::NamedTensor> state() const;
  // Bytes of a model that one rank has all of.
  std::int64_t whole_weights() const;
  double seconds_met() const;
  // Axes of the layout and their sizes, for checkpoints.
  const std::vector<std::pair<std::string, std::int64_t>>& mesh() const { return mesh_; }
  // Bytes of this rank as the layout says them.
  const MemoryUse& memory_of_layout() const { return memory_; }

 private:
  void set_values(const Start& start);
  void wrap(const Start& start, bool without_memory);
  void load_state(const Start& start);

  Run& run_;
  std::unique_ptr<nn::ActivationCheckpoint> activations_;
  std::optional<parallel::DataParallelBase> parallel_;
  std::optional<Optimization> optimization_;
  std::vector<std::pair<std::string, std::int64_t>> mesh_;
  MemoryUse memory_;
  bool settled_ = false;  // since the last step
};

}  // namespace reigen::train
