// What is trained: a model, its data, its loss and its score. Knows nothing of ranks, batches or files.
//
//   struct Mine : reigen::train::Task { ... };
//   Mine task;
//   reigen::train::Trainer(task, world, {.config = config}).fit();
//
// Thread rule: a task belongs to one rank; the datasets it gives are asked from the loader's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/nn/unit.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

// Sums over samples (or tokens, where these are what is guessed), so that those of batches and ranks add up.
struct Scores {
  double loss_sum = 0;
  std::optional<std::int64_t> correct = {};  // not set: no accuracy is shown, as of a regression
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

  virtual const std::string& name() const = 0;  // in messages and names of directories: "mnist"

  // The same one each time. May read the data first, whose kinds of samples can decide the model's size.
  virtual torch::nn::Module& module() = 0;

  // The module's parts in the order in which its forward calls them, for what happens around them
  // (train.activation_checkpoint). Empty: it is not made of units.
  virtual std::vector<nn::Unit> units() { return {}; }

  // Initial values, from the seed and the parameters' names alone. The default is nn::initialize.
  virtual void initialize(std::uint64_t seed);

  // Opened when first asked for; may be asked for more than once. The test data only when it is time to validate.
  virtual data::DatasetPtr training_data() = 0;
  virtual data::DatasetPtr test_data() = 0;

  // What training_data() holds, behind its number in a run's first line: "20000 drawn digits".
  virtual std::string kind_of_samples() const { return "samples"; }

  // Mean loss over the batch's terms (Dataset::terms), from which backward() can run. A task overrides loss(), or
  // loss_of() where its samples have several tensors; what it overrides is what is called.
  virtual at::Tensor loss(const at::Tensor& input, const at::Tensor& target);
  virtual at::Tensor loss_of(const data::Samples& samples) { return loss(samples.input, samples.target); }

  // Called without gradients and in eval mode. One of the two, as above.
  virtual Scores score(const at::Tensor& input, const at::Tensor& target);
  virtual Scores score_of(const data::Samples& samples) { return score(samples.input, samples.target); }

  // Samples of one call of score_of().
  virtual std::int64_t score_batch() const { return 250; }

  // A score for people: "test accuracy 99.52 %, loss 0.0222 (4000 samples)"; "test loss 0.0222 (4000 samples)" where
  // nothing is right or wrong.
  virtual std::string describe(const Scores& scores) const;

  // What summary.json says of a score beside test_accuracy (if there is one), test_loss and test_samples.
  virtual std::vector<std::pair<std::string, double>> more_figures(const Scores& scores) const;

  // Printed by rank 0 at the end of a run, e.g. text that the model makes up; empty: nothing. Without gradients and in
  // eval mode.
  virtual std::string closing_words() { return {}; }
};

}  // namespace reigen::train
