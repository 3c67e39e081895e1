// metrics.jsonl: one JSON object a line, one line a step, the keys in this order (docs/files.md):
//   step, epoch, loss, lr, samples_per_s, step_ms, data_ms, forward_ms, backward_ms, comm_exposed_ms, optimizer_ms,
//   time and, where the norm of the gradients was taken, grad_norm, and for a step that was left out skipped
// and a line a validation, behind that of the last step before it:
//   step, epoch, test_loss, test_accuracy, test_samples, what the task adds, time
// Losses are written with as many digits as identify them; null when they are no numbers. Lines reach the file at least
// once a second; while the disk is full they are kept in memory. Thread rule: a writer belongs to one thread.
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
  std::int64_t step = 0;   // counted from 1
  std::int64_t epoch = 0;  // counted from 0
  double loss = 0;         // over the global batch
  double lr = 0;
  double samples_per_s = 0;  // of all ranks
  double step_ms = 0;        // rank 0's time from the request for the batch to the end of the optimizer
  double data_ms = 0;        // waiting for the batch
  double forward_ms = 0;
  double backward_ms = 0;  // without comm_exposed_ms
  double comm_exposed_ms = 0;
  double optimizer_ms = 0;
  std::optional<double> grad_norm = {};  // of all gradients, before clipping
  bool skipped = false;                  // no weight changed: the step gave no number, or its batch was left out
  double time = 0;                       // wall clock: seconds since 1970 (UTC); 0: not written
};

struct ValidationMetrics {
  std::int64_t step = 0;   // after which it was made
  std::int64_t epoch = 0;  // of that step, counted from 0
  double test_loss = 0;
  std::optional<double> test_accuracy = {};  // 0 to 1
  std::int64_t test_samples = 0;
  std::vector<std::pair<std::string, double>> more = {};  // Task::more_figures
  double time = 0;
};

std::string to_json_line(const StepMetrics& metrics);  // ends with a newline
std::string to_json_line(const ValidationMetrics& metrics);

double seconds_since_1970();  // of the wall clock, to a millisecond

class LineFile;

class MetricsWriter {
 public:
  // Keeps the lines up to step `keep_steps` of an existing file and cuts off the rest; 0 starts anew.
  // Throws IoError, and DataError when a file that holds something does not hold the line of step `keep_steps`.
  MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps);
  ~MetricsWriter();                              // writes what is left; errors are lost, so call flush() first
  MetricsWriter(const MetricsWriter&) = delete;  // two writers would mix their lines
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);
  void flush();  // throws IoError; what was not written is kept and tried again

  // Why lines are kept in memory instead of the file; empty: they are not.
  const std::string& trouble() const;

 private:
  std::unique_ptr<LineFile> file_;
};

}  // namespace reigen::train
