// The result of a run: summary.json, and a few lines for the user.
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/train/task.h"
#include "train/model/memory_use.h"
#include "train/run/step_times.h"

namespace reigen::train {

struct Summary {
  std::string task = {};
  std::string backend = {};
  std::string precision = {};
  std::string strategy = {};
  std::string shard = {};  // the kind of data that was sharded (parallel.shard)
  int world_size = 1;
  std::uint64_t bytes_given = 0;  // bytes that this rank sent to average gradients or weights (Strategy::bytes_given)
  std::int64_t steps = 0;
  std::int64_t first_step = 0;  // steps done before this process started
  std::int64_t epochs = 0;
  std::int64_t global_batch = 0;
  std::int64_t samples_per_step = 0;       // fewer than global_batch if the data have fewer samples
  std::optional<Figures> validation = {};  // not set without data for validation
  std::string validation_text = {};        // the figures as text for people
  struct Best {                            // with checkpoint.monitor
    std::string monitor = {};
    double value = 0;
    std::int64_t step = 0;
    std::filesystem::path path = {};
  };
  std::optional<Best> best = {};
  double samples_per_s = 0;          // samples of a step / median time of a step
  double samples_per_s_overall = 0;  // samples / time of all steps, including the first
  double terms_per_s = 0;            // likewise of the terms of the loss: tokens of a text
  // Of a task that knows how many operations a sample needs (Task::flops_of_sample()).
  struct Flops {
    double of_sample = 0;
    double peak = 0;         // operations per second of all ranks in products of matrices, measured after the last step
    double utilisation = 0;  // of the median step: the part of `peak` that the model's own operations reach
  };
  std::optional<Flops> flops = {};
  StepTime mean = {};
  int data_workers = 1;     // threads that made samples at the end
  int cores = 64;           // that a rank may use
  double first_step_s = 0;  // from the start of the process to the end of the first optimizer step
  double wall_s = 0;        // from the start of the process to the summary
  std::vector<std::int64_t> peak_rss_bytes = {};  // one entry for each rank
  MemoryReport memory = {};
  struct Pipeline {
    std::string schedule = {};
    int micro_batches = 0;
    double bubble = 0;     // of the last step, measured
    double predicted = 0;  // by replay(), from the mean times of the stages
  };
  std::optional<Pipeline> pipeline = {};  // with mesh.pp, if this process made a step
  std::filesystem::path directory = {};
};

std::string to_json(const Summary& summary);
std::string to_json(const Figures& figures);  // {"test_loss": ..., "test_samples": N}
std::string to_text(const Summary& summary);

}  // namespace reigen::train
