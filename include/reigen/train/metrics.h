// metrics.jsonl: one JSON object a line, one line a step, the keys in this order (docs/files.md):
//   step, epoch, loss, lr, samples_per_s, step_ms, data_ms, forward_ms, backward_ms, comm_exposed_ms, optimizer_ms and,
//   where the norm of the gradients was taken, grad_norm, and for a step that was left out skipped
// The loss is written with as many digits as identify it; null when it is no number. Lines reach the file at least once
// a second. Thread rule: a writer belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

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
};

std::string to_json_line(const StepMetrics& metrics);  // ends with a newline

class LineFile;

class MetricsWriter {
 public:
  // Keeps the lines of steps up to `keep_steps` of an existing file and cuts off the rest; 0 starts anew.
  // Throws IoError, and DataError when a file that holds something does not hold the line of step `keep_steps`.
  MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps);
  ~MetricsWriter();                              // writes what is left; errors are lost, so call flush() first
  MetricsWriter(const MetricsWriter&) = delete;  // two writers would mix their lines
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics);
  void flush();  // throws IoError

 private:
  std::unique_ptr<LineFile> file_;
};

}  // namespace reigen::train
