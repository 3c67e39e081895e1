// A task consists of a model, its data, its loss and its score. The trainer divides the data among ranks and batches,
// and writes the files of the run.
//
//   struct Mine : reigen::train::Task { ... };
//   Mine task;
//   reigen::train::Trainer(task, world, {.config = config}).fit();
//
// Thread rule: a task belongs to one rank. The loader's threads read from the datasets that it returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/nn/skips.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/context_parallel.h"
#include "reigen/parallel/tensor_parallel.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

// Sums over samples (or over tokens, if the model predicts tokens). The sums of batches and ranks can be added up.
struct Scores {
  double loss_sum = 0;
  std::optional<std::int64_t> correct = {};  // not set if there is no accuracy, for example for a regression
  std::int64_t count = 0;

  double loss() const { return count > 0 ? loss_sum / static_cast<double>(count) : 0.0; }
  std::optional<double> accuracy() const {
    if (!correct) return std::nullopt;
    return count > 0 ? static_cast<double>(*correct) / static_cast<double>(count) : 0.0;
  }
};

class Task {
 public:
  virtual ~Task() = default;
  Task() = default;
  Task(const Task&) = delete;  // owns a model
  Task& operator=(const Task&) = delete;

  virtual const std::string& name() const = 0;  // for messages and names of directories: "mnist"

  // Returns the same module each time. The first call may read the data, because the number of classes can decide the
  // model's size.
  virtual torch::nn::Module& module() = 0;

  // The units of the module (nn/unit.h), in the order in which its forward calls them. train.activation_checkpoint and
  // sharding of the parameters work unit by unit. An empty result means that the module is not made of units.
  virtual std::vector<nn::Unit> units() { return {}; }

  // The skip connections between the units (nn/skips.h), for ranks that hold some of the units only (--mesh.pp).
  virtual std::vector<nn::Skip> skips() { return {}; }

  // Sets the initial values. They depend on the seed and the parameters' names alone. The default is nn::initialize.
  virtual void initialize(std::uint64_t seed);

  // How the ranks along the mesh axis "tp" divide the model's layers (--mesh.tp, reigen/parallel/tensor_parallel.h). An
  // empty plan means that they cannot. The trainer calls tensor_plan() when the module has its values. After the
  // trainer has divided the module, it calls divide(): from then on the module's forward may return a part of its
  // result, and loss() and score() must give what they give for the whole module.
  virtual parallel::Plan tensor_plan() { return {}; }
  virtual void divide(const parallel::TensorParallel& divided) { (void)divided; }

  // Ranks along the mesh axis "cp" divide each sequence (--mesh.cp, reigen/parallel/context_parallel.h). A task that
  // can do so keeps `context` and returns true. From then on all these ranks get the same samples. first_input() gives
  // this rank's tokens of them, loss() the number of these ranks times the sum over this rank's terms divided by the
  // number of terms of all, and score() the sums over this rank's terms.
  virtual bool divide_sequences(const parallel::ContextParallel& context) {
    (void)context;
    return false;
  }

  // The input of the module's first unit, for ranks that hold the first units of the module only (--mesh.pp,
  // reigen/parallel/pipeline.h). On the ranks with the last units the trainer calls loss_of() and score_of(). There the
  // module's forward runs the last units only, and their input comes from other ranks. So what loss_of(), score_of() or
  // the forward compute before the first unit is lost. It must be part of that unit, or be done here too: first_input()
  // must return what they give to the first unit. The trainer compares the two in the first step.
  virtual nn::Carry first_input(const data::Samples& samples) { return {samples.input}; }

  // The first call opens the data; more calls may follow. The trainer calls test_data() before the first step, so that
  // a damaged file is found early.
  virtual data::DatasetPtr training_data() = 0;
  virtual data::DatasetPtr test_data() = 0;

  // A name for the samples of training_data(); a run's first line prints it after their number: "20000 drawn digits".
  virtual std::string kind_of_samples() const { return "samples"; }

  // The mean loss over the terms of the batch (samples, or valid tokens of texts: Dataset::terms), on which the trainer
  // calls backward(). A task overrides loss(), or loss_of() if its samples have several tensors. The trainer calls
  // loss_of().
  virtual at::Tensor loss(const at::Tensor& input, const at::Tensor& target);
  virtual at::Tensor loss_of(const data::Samples& samples) { return loss(samples.input, samples.target); }

  // The floating-point operations of forward and backward for one sample, or 0 if they are not known. If they are, the
  // trainer reports which part of the speed of matrix products the run reaches (model FLOPs utilisation).
  virtual double flops_of_sample() { return 0; }

  // The score of a batch, computed without gradients and in eval mode. A task overrides score(), or score_of() if its
  // samples have several tensors. The trainer calls score_of().
  virtual Scores score(const at::Tensor& input, const at::Tensor& target);
  virtual Scores score_of(const data::Samples& samples) { return score(samples.input, samples.target); }

  // The number of samples that the trainer passes to one call of score_of().
  virtual std::int64_t score_batch() const { return 250; }

  // The score as a text for people: "test accuracy 99.52 %, loss 0.0222 (4000 samples)", or "test loss 0.0222 (4000
  // samples)" if there is no accuracy.
  virtual std::string describe(const Scores& scores) const;

  // Further figures of a score for summary.json, besides test_accuracy (if there is one), test_loss and test_samples.
  virtual std::vector<std::pair<std::string, double>> more_figures(const Scores& scores) const;

  // Files without which the trained model cannot be used, such as a tokenizer: a name in the run's directory, and the
  // file. The trainer calls this after test_data(), and rank 0 copies them when a run starts.
  virtual std::vector<std::pair<std::string, std::string>> files() { return {}; }

  // A text that rank 0 prints at the end of a run, for example text that the model generates. An empty text is not
  // printed. The trainer calls this function without gradients and in eval mode.
  virtual std::string closing_words() { return {}; }
};

}  // namespace reigen::train
