// A task consists of a model, its loss and its figures. Its data come from a DataModule (data_module.h). The trainer
// divides the data among ranks and batches, and writes the files of the run.
//
//   struct Mine : reigen::train::Task { ... };
//   Mine task;
//   reigen::train::Trainer(task, data, world, {.config = config}).fit();
//
// Thread rule: a task belongs to one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/nn/skips.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/context_parallel.h"
#include "reigen/parallel/tensor_parallel.h"
#include "reigen/train/config.h"
#include "reigen/train/metrics.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::train {

// An optimizer that a task chooses itself.
struct OwnOptimizer {
  // The rule with its options, among them the learning rate and groups of parameters by name:
  //   optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .groups = {optim::no_decay()}}
  optim::AnyOptimizer rule = {};
  // The learning rate of each step, counted from 0. Empty: the rate of the rule, by optim.schedule and the warm-up.
  std::function<double(std::int64_t step)> rate = {};
};

class Task {
 public:
  virtual ~Task() = default;
  Task() = default;
  Task(const Task&) = delete;  // owns a model
  Task& operator=(const Task&) = delete;

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

  // The optimizer, its groups and the rate of each step, in place of those of the options (--optim.name, --optim.lr and
  // others). All ranks must return the same. Sharding, checkpoints, train.clip_norm and optim.ema_decay work as usual.
  // The options that the task does not read in `config` have no effect then; a note at the start of a run says so.
  // Nothing: the options count.
  virtual std::optional<OwnOptimizer> configure_optimizers(const Config& config) {
    (void)config;
    return std::nullopt;
  }

  // How the ranks along the mesh axis "tp" divide the model's layers (--mesh.tp, reigen/parallel/tensor_parallel.h). An
  // empty plan means that they cannot. The trainer calls tensor_plan() when the module has its values. After the
  // trainer has divided the module, it calls divide(): from then on the module's forward may return a part of its
  // result, and training_step() and validation_step() must give what they give for the whole module.
  virtual parallel::Plan tensor_plan() { return {}; }
  virtual void divide(const parallel::TensorParallel& divided) { (void)divided; }

  // Ranks along the mesh axis "cp" divide each sequence (--mesh.cp, reigen/parallel/context_parallel.h). A task that
  // can do so keeps `context` and returns true. From then on all these ranks get the same samples. first_input() gives
  // this rank's tokens of them, training_step() the number of these ranks times the sum over this rank's terms divided
  // by the number of terms of all, and validation_step() logs figures of this rank's terms.
  virtual bool divide_sequences(const parallel::ContextParallel& context) {
    (void)context;
    return false;
  }

  // The input of the module's first unit, for ranks that hold the first units of the module only (--mesh.pp,
  // reigen/parallel/pipeline.h). On the ranks with the last units the trainer calls training_step() and
  // validation_step(). There the module's forward runs the last units only, and their input comes from other ranks. So
  // what these or the forward compute before the first unit is lost. It must be part of that unit, or be done here too:
  // first_input() must return what they give to the first unit. The trainer compares the two in the first step.
  virtual nn::Carry first_input(const data::Samples& samples) { return {samples.input}; }

  // The mean loss over the terms of the batch (samples, or valid tokens of texts: Dataset::terms), on which the trainer
  // calls backward(). What it logs goes to metrics.jsonl and TensorBoard: in each step the figure of rank 0's samples,
  // at the end of an epoch the figure of all ranks' samples.
  virtual at::Tensor training_step(const data::Samples& batch) = 0;

  // Logs figures of a batch of validation data. The trainer calls it without gradients and in eval mode, and writes the
  // figures of all batches and ranks. The default logs the result of training_step() as "test_loss", and nothing else.
  virtual void validation_step(const data::Samples& batch);

  // The same for the data of DataModule::test(). The default calls validation_step().
  virtual void test_step(const data::Samples& batch) { validation_step(batch); }

  // What the model says to a batch: tensors with a row for each sample. Trainer::predict() writes them to a file.
  // Called without gradients and in eval mode. The default refuses.
  virtual std::vector<data::NamedTensor> predict_step(const data::Samples& batch);

  // The number of samples that the trainer passes to one call of validation_step(), test_step() or predict_step().
  virtual std::int64_t validation_batch() const { return 250; }

  // The floating-point operations of forward and backward for one sample, or 0 if they are not known. If they are, the
  // trainer reports which part of the speed of matrix products the run reaches (model FLOPs utilisation).
  virtual double flops_of_sample() { return 0; }

  // Figures as a text for people. The default has all of them: "test accuracy 99.52 %, loss 0.0222 (4000 samples)" if
  // these are test_accuracy and test_loss, else "accuracy 0.9952, error 0.13 (4000 samples)".
  virtual std::string describe(const Figures& figures) const;

  // Files without which the trained model cannot be used, such as a tokenizer: a name in the run's directory, and the
  // file. The trainer calls this after the data were opened, and rank 0 copies them when a run starts.
  virtual std::vector<std::pair<std::string, std::string>> files() { return {}; }

  // A text that rank 0 prints at the end of a run, for example text that the model generates. An empty text is not
  // printed. The trainer calls this function without gradients and in eval mode.
  virtual std::string closing_words() { return {}; }

  // From now on log() gives what it gets to `metrics`, which must live until the next call; null: log() does nothing.
  // Returns what it was before.
  Metrics* log_to(Metrics* metrics) { return std::exchange(metrics_, metrics); }

 protected:
  // Logs a figure of the batch under a name. `value`: a number or a tensor of one number, which is a mean over the
  // terms of the batch; accuracy() and others of metrics.h; or a metric of your own. Waits neither for a GPU nor for
  // other ranks. Ranks that have a batch must log the same names.
  template <class Value>
  void log(std::string_view name, const Value& value) {
    if (metrics_ != nullptr) metrics_->add(name, value);
  }

 private:
  Metrics* metrics_ = nullptr;
};

// While it lives, log() of a task goes to `metrics`; null: nowhere.
class LogTo {
 public:
  LogTo(Task& task, Metrics* metrics) : task_(task), before_(task.log_to(metrics)) {}
  ~LogTo() { task_.log_to(before_); }
  LogTo(const LogTo&) = delete;  // gives back once
  LogTo& operator=(const LogTo&) = delete;

 private:
  Task& task_;
  Metrics* before_;
};

}  // namespace reigen::train
