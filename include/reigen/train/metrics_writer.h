// The file metrics.jsonl has one JSON object in each line. The line of a step has these keys, in this order
// (docs/files.md):
//   step, epoch, loss, lr, samples_per_s, step_ms, data_ms, forward_ms, backward_ms, comm_exposed_ms, optimizer_ms,
//   time, then grad_norm if the norm of the gradients was computed, then skipped (true) if the step was skipped, then
//   what the task's training_step() has logged: figures of rank 0's samples
// The line of a validation comes after the line of the last step before the validation. It has these keys:
//   step, epoch, what validation_step() has logged (figures of all ranks' samples), test_samples, time, at_end (true)
//   if it is the validation at the end of the run
// The line of an epoch in which the task has logged something comes after the line of its last step:
//   step, epoch, epoch_means (an object: the figures of all ranks' samples in the epoch), time
// Losses are written with as many digits as identify the number, and as null if they are not finite. Lines are written
// to the file at least once a second. While the disk is full, the lines are kept in memory. Thread rule: a writer
// belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reigen::train {

struct StepMetrics {
  static constexpr const char* kKeys[] = {"step",         "epoch",   "loss",       "lr",          "samples_per_s",
                                          "step_ms",      "data_ms", "forward_ms", "backward_ms", "comm_exposed_ms",
                                          "optimizer_ms", "time",    "grad_norm",  "skipped",     "epoch_means"};

  std::int64_t step = 0;   // counted from 1
  std::int64_t epoch = 0;  // counted from 0
  double loss = 0;         // mean over the global batch
  double lr = 0;
  double samples_per_s = 0;  // samples of all ranks
  double step_ms = 0;        // rank 0's time from the request for the batch to the end of the optimizer
  double data_ms = 0;        // waiting for the batch
  double forward_ms = 0;
  double backward_ms = 0;      // without comm_exposed_ms
  double comm_exposed_ms = 0;  // waiting for communication
  double optimizer_ms = 0;
  std::optional<double> grad_norm = {};  // norm of all gradients, before clipping
  bool skipped = false;                  // no weight changed: a value was not finite, or the batch was left out
  double time = 0;                       // wall clock: seconds since 1970 (UTC); 0 means that the line has no time
  std::vector<std::pair<std::string, double>> logged = {};  // by the task's training_step(), on rank 0
};

using NamedValues = std::vector<std::pair<std::string, double>>;

struct ValidationMetrics {
  static constexpr const char* kKeys[] = {"step", "epoch", "lr", "test_samples", "epoch_means", "time", "at_end"};

  std::int64_t step = 0;   // the last step before this validation
  std::int64_t epoch = 0;  // epoch of that step, counted from 0
  NamedValues figures = {};
  std::int64_t samples = 0;  // or the valid tokens of texts
  bool at_end = false;       // the validation at the end of the run
  double time = 0;
};

struct EpochMetrics {
  std::int64_t step = 0;  // the last step of the epoch
  std::int64_t epoch = 0;
  NamedValues figures = {};
  double time = 0;
};

std::string to_json_line(const StepMetrics& metrics);  // ends with a newline
std::string to_json_line(const ValidationMetrics& metrics);
std::string to_json_line(const EpochMetrics& metrics);

double seconds_since_1970();  // wall clock time, to a millisecond

class AppendedFile;

class MetricsWriter {
 public:
  // Keeps the lines of an existing file up to step `keep_steps` and cuts off the rest; 0 empties the file. Throws
  // IoError, and DataError if the file is not empty but lacks the line of step `keep_steps`.
  MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps);
  ~MetricsWriter();                              // writes the remaining lines; errors are lost, so call flush() first
  MetricsWriter(const MetricsWriter&) = delete;  // two writers would mix their lines
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);
  void write(const EpochMetrics& metrics);
  void flush();  // throws IoError; the next write tries again to write the lines that are left

  // The reason why lines are kept in memory and not written to the file; empty if no lines are kept.
  const std::string& trouble() const;

 private:
  std::unique_ptr<AppendedFile> file_;
};

}  // namespace reigen::train
