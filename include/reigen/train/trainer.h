// The training loop. It uses only public parts of other folders, so a program can have an equally good loop of its own
// (examples/mnist_ddp.cc). Besides the steps, the loop does these things: it writes the files of the run, metrics and
// progress, validates, saves checkpoints, resumes from them, stops cleanly, and throws the same errors on all ranks.
//
// The loss of a step is the mean over the global batch: sum over ranks of loss_r · n_r / sum of n_r, added in fp64
// and in rank order. n_r is the number of terms of the rank's samples (Dataset::terms): samples, or the valid tokens
// of texts. The ranks add up the losses after backward, in the small all_reduce that also tells all ranks of a request
// to stop. This all_reduce comes before the optimizer runs, so a loss that is not finite changes no weight. (A
// ManualTask has made its steps by then. If a strategy lets each rank step with its own gradients, the ranks add up the
// losses of up to 16 steps at once.) Seed, options and number of ranks determine a run bit for bit, also if it is
// resumed from a checkpoint. Thread rule: only one thread of each rank uses its Trainer. Ranks may be threads of one
// process.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/train/callback.h"
#include "reigen/train/config.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct TrainerOptions {
  std::string name = "training";                       // for messages, and for the names of directories
  Config config = {};                                  // the same on every rank
  std::int64_t batch_per_rank = 64;                    // used when train.global_batch is not set
  std::function<bool()> stop_requested = {};           // called once a step; true on any rank stops all ranks
  std::function<void(const std::string&)> write = {};  // receives rank 0's output; if empty, stdout gets it
  int columns = 0;                                     // width of the terminal, for a progress bar; 0 means plain lines
  std::string resume_command = {};                     // shown to the user when the run was stopped
  // Makes a second task like the first, with its model's memory. For train.verify with a mesh, which trains this model
  // as one process would.
  std::function<std::shared_ptr<Task>()> make_task = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};  // called in this order
  // The learning rate of each step, counted from 0, in place of optim.lr, its warm-up and optim.schedule. The same on
  // every rank. Factors of groups (optim.lr_factors) count.
  std::function<double(std::int64_t step)> rate = {};
};

struct FitResult {
  std::int64_t steps = 0;     // steps of the whole run, including those before a resume
  bool stopped = false;       // stopped on request: the program should return exit code 75
  bool already_done = false;  // the checkpoint is from a finished run
  std::filesystem::path directory = {};
  // After the last step. Empty if the run was stopped, has no data for validation, or had ended before this start.
  Figures validation = {};
  double samples_per_s = 0;  // samples of a full step / median time of a step, without the first steps
};

class Trainer {
 public:
  Trainer(Task& task, DataModule& data, Communicator world, TrainerOptions options);
  // For a task that is its own DataModule.
  template <class Both>
  requires std::derived_from<Both, Task> && std::derived_from<Both, DataModule> Trainer(Both& both, Communicator world,
                                                                                        TrainerOptions options)
      : Trainer(both, both, std::move(world), std::move(options)) {}
  ~Trainer();
  Trainer(const Trainer&) = delete;  // has a lock on the run's directory
  Trainer& operator=(const Trainer&) = delete;

  // Trains to the end of train.epochs or train.max_steps, whichever comes first. Starts from the checkpoint that
  // run.resume names. Call it once per Trainer. Throws, with the same exit code on every rank: IoError or DataError for
  // inputs and outputs (exit code 66, 65, 77, 73 or 74); InvalidArgument (exit code 78) for options that contradict the
  // checkpoint; Error (exit code 80) if the loss or the norm of the gradients is not finite, naming step, ranks and
  // parameters.
  FitResult fit();

  // Collective. The figures that validation_step() logs over all of DataModule::validation(), or test_step() over
  // test(). Each sample counts once: every rank takes its share. Before fit(), the weights are those that run.resume or
  // run.weights name, in the layout that the options say; without these two options, the module as it is, whole on
  // every rank. After fit(), the weights are those that it has trained.
  Figures validate();
  Figures test();
  // Collective. What predict_step() says to each sample of DataModule::predict(), in the order of the samples: the same
  // names and types, with a row for each sample. Rank 0 gets them, in the memory of the host; the other ranks get
  // nothing. Not with mesh.pp or mesh.cp. The weights are those of validate().
  std::vector<data::NamedTensor> predict();

  // Collective. Saves a checkpoint of the state after fit(), if there is none of this step, and returns its path on
  // every rank. Throws IoError.
  std::filesystem::path save_checkpoint();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::train
