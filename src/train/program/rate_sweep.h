// What --run.find_lr does: a short training whose learning rate grows from step to step, by a constant factor. The rate
// at which the loss falls fastest is a good one. Source: Smith, 2017, https://arxiv.org/abs/1506.01186, section 3.3.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"
#include "reigen/train/trainer.h"

namespace reigen::train {

struct RateSweepOptions {
  double lowest = 1e-7;
  double highest = 10;
  std::int64_t steps = 100;
  double ends_at = 4;  // the sweep ends when the smoothed loss is this many times the lowest
};

struct RateSweep {
  struct Step {
    double rate = 0;
    double loss = 0;      // of the global batch, before the step
    double smoothed = 0;  // mean of the losses so far; each counts 0.95 times as much as the one after it
  };
  std::vector<Step> steps = {};
  bool is_stopped = false;  // a request to stop ended it early

  // The first step that counts: the smoothed loss of the first tenth is the mean of too few losses.
  std::size_t settled() const { return steps.size() / 10; }
  std::size_t lowest() const;  // the step with the lowest smoothed loss
  // Of the steps up to the lowest, the rate of the one at which the smoothed loss falls fastest; nothing if it never
  // falls.
  std::optional<double> suggestion() const;
};

// Adds a step. Returns false if the sweep ends with it.
bool note(RateSweep& sweep, double rate, double loss, const RateSweepOptions& options);

// Collective. Trains `task`, whose weights are other ones afterwards. The options are those of the training; nothing is
// left on the disk. Every rank returns the same.
RateSweep sweep_rates(Task& task, DataModule& data, const Communicator& world, TrainerOptions options,
                      const RateSweepOptions& sweep = {});

// The sweep as lines for a person. `scale`: how many times optim.lr a rate is (optim.lr_scaling). `suggests`: the words
// before the rate that is suggested.
std::string to_text(const RateSweep& sweep, double scale, const std::string& suggests = "--optim.lr");
// What --run.find_lr does: sweeps, and rank 0 prints the result and writes the curve to run.dir/find_lr, or to a new
// directory. Collective. Returns the exit code.
int find_rate(Task& task, DataModule& data, const Communicator& world, const TrainerOptions& options);
// The curve for TensorBoard, in a folder of its own: find_lr/loss, find_lr/smoothed_loss and find_lr/rate of each step.
void write_board(const RateSweep& sweep, const std::filesystem::path& folder);

}  // namespace reigen::train
