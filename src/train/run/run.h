// The state of a run that all of its parts share: task, configuration, console and progress. The loop changes it, and
// so do RunFiles and RunData when the run begins (files/run_files.h, start/run_data.h).
// Thread rule: used only by the thread of its rank.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/mesh/mesh.h"
#include "reigen/train/config.h"
#include "reigen/train/manual_task.h"
#include "reigen/train/task.h"
#include "reigen/train/trainer.h"
#include "train/run/console.h"
#include "train/run/validated.h"

namespace reigen::train {

struct Run {
  Run(Task& its_task, DataModule& its_data, Communicator its_world, TrainerOptions its_options)
      : task(its_task),
        manual(dynamic_cast<ManualTask*>(&its_task)),
        data_module(its_data),
        world(std::move(its_world)),
        data(world),
        options(std::move(its_options)),
        config(options.config),
        console(is_first(), options.write ? options.write : write_to_stdout, options.columns) {}

  bool is_first() const { return world.rank() == 0; }
  bool wants_stop() const { return callback_stops || (options.stop_requested && options.stop_requested()); }
  // Whether train.max_time of this start is over on this rank.
  bool time_is_up() const { return max_time && std::chrono::steady_clock::now() - started >= *max_time; }
  // The most samples that an evaluation of all samples takes: with run.fast_dev some batches, else 0, which means all.
  std::int64_t most_of_trial() const { return config.run.fast_dev > 0 ? config.validate.limit : 0; }
  void say(const std::string& text) { console.say(text); }

  const std::string& name() const { return options.name; }

  Task& task;
  ManualTask* const manual;  // the task, if it makes its steps itself; else null
  DataModule& data_module;
  Metrics metrics = {};  // what the steps of this epoch have logged
  Communicator world;    // all ranks
  // The ranks that compute on different samples: all ranks, or with a mesh those along the axes of data parallelism.
  Communicator data;
  std::optional<mesh::Mesh> mesh = {};  // of all ranks, if mesh.tp, mesh.cp or mesh.pp is above 1
  // Whether each rank holds a part of the model only.
  bool divides_model() const { return config.mesh.tp > 1 || config.mesh.pp > 1; }
  // How many ranks compute on the same terms: in a pipeline only ranks of the last stage do. Sums over `world` count
  // each of these terms so often.
  int copies() const { return mesh ? mesh->size("tp") : 1; }
  // Whether what this rank's task logs counts. Ranks that compute the same log the same, and one of them counts.
  bool logs() const { return !mesh || mesh->coordinate("tp") == 0; }
  // The mean of a loss over `terms`, from its sum over all ranks of `world`.
  double mean_of(double sum, std::int64_t terms) const {
    const int all =
        copies() * (mesh ? mesh->size("cp") : 1);  // Task::divide_sequences() says what a loss is with mesh.cp
    return sum / all / static_cast<double>(terms);
  }
  TrainerOptions options;
  Config config;  // options.config, with values that a checkpoint adds
  Console console;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::optional<std::chrono::duration<double>> max_time = {};  // not set: no limit
  at::Device device = at::kCPU;                                // where this rank computes

  // Of Task::configure_optimizers(): the groups of parameters, and the rate of each step. Its rule is in config.optim.
  std::vector<optim::ParameterGroup> own_groups = {};
  std::function<double(std::int64_t step)> own_rate = {};
  std::vector<PartOptimizer> parts = {};  // of ManualTask::optimizers(); empty for other tasks

  std::int64_t done = 0;            // steps done
  std::int64_t total = 0;           // steps of the whole run
  std::int64_t steps_of_epoch = 1;  // set when the data are opened
  std::int64_t epoch = 0;           // epoch of the next sample
  std::int64_t position = 0;        // position of the next sample in that epoch
  bool validation_is_due = false;   // after step `done`; not made yet
  // The validations so far with the figures that stop.monitor, checkpoint.monitor or a plateau watches; not set if none
  // of them is on. Checkpoints keep the list.
  std::optional<std::vector<Validated>> validations = {};
  bool stop = false;            // a rank requested a stop, and all ranks know it
  bool ends = false;            // train.max_time is over on a rank, and all ranks know it
  bool callback_stops = false;  // a callback of this rank has requested a stop
  int rollbacks = 0;            // how often the run went back to a checkpoint of its own
};

}  // namespace reigen::train
