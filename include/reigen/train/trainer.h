// The training loop: everything in it is a public part of another floor, so a loop of your own can be as good
// (examples/mnist_ddp.cc). What it adds: files of the run, metrics, progress, validation, checkpoints and going on from
// them, a clean stop, and errors that every rank agrees on.
//
// The loss of a step is the mean over the global batch: sum over ranks of loss_r · n_r / sum of n_r, in fp64 and rank
// order, n_r the terms of the rank's samples (Dataset::terms): samples, or the valid tokens of texts. The ranks add it
// up after backward in the same small all_reduce that carries the wish to stop, before the optimizer runs: a loss that
// is no number changes no weight. A run is determined by seed, options and number of ranks, bit for bit; one that goes
// on from a checkpoint as well. Thread rule: one thread a rank; ranks may be threads of one process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "reigen/comm/communicator.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct TrainerOptions {
  Config config = {};                                  // the same on every rank
  std::int64_t batch_per_rank = 64;                    // when train.global_batch is not set
  std::function<bool()> stop_requested = {};           // asked once a step; true on any rank: checkpoint, then stop
  std::function<void(const std::string&)> write = {};  // rank 0's output; empty: stdout
  int columns = 0;                                     // of a terminal that shows a bar; 0: plain lines
  std::string resume_command = {};                     // told to the user of a run that was stopped
};

struct FitResult {
  std::int64_t steps = 0;     // of the whole run, those before a resume included
  bool stopped = false;       // on request: exit with 75
  bool already_done = false;  // the checkpoint was of a finished run
  std::filesystem::path directory = {};
  Scores test = {};          // after the last step; empty when stopped
  double samples_per_s = 0;  // samples of a full step / median time of a step, the first ones left out
};

class Trainer {
 public:
  Trainer(Task& task, Communicator world, TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;  // holds the run's directory
  Trainer& operator=(const Trainer&) = delete;

  // Trains to the end of train.epochs or train.max_steps, whichever comes first, from the checkpoint that run.resume
  // names. Once per Trainer. Throws, with the same code on every rank: IoError and DataError for inputs and outputs
  // (66, 65, 77, 73, 74), InvalidArgument (78) for options that contradict the checkpoint, Error 80 when the loss or a
  // norm of gradients is not finite, naming step, ranks and parameters.
  FitResult fit();

  // The task's score over all its test samples, each counted once: every rank takes its share.
  Scores validate();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::train
