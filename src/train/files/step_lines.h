// The files that a run extends in each step: metrics.jsonl, and the samples that each step drew (data.dump_order).
// Only rank 0 has the files; on the other ranks no file is open and calls do nothing.
// Thread rule: used by one thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "reigen/data/sampler.h"
#include "reigen/train/metrics.h"
#include "train/files/line_file.h"
#include "train/run/console.h"

namespace reigen::train {

class StepLines {
 public:
  explicit StepLines(Console& console) : console_(console) {}

  // Opens the file of samples and writes the samples of the steps up to `done` again. Throws IoError.
  void open_order(const std::filesystem::path& path, const data::SamplerOptions& drawn_by, std::int64_t done);
  // Opens metrics.jsonl and keeps the lines of the steps up to `done`. Throws IoError, and DataError if the file is not
  // empty but lacks the line of step `done`.
  void open_metrics(const std::filesystem::path& path, std::int64_t done);
  void close();
  bool writes_order() const { return order_.has_value(); }

  // `order` is the line with the samples of this step. It is ignored if data.dump_order is not set. If the disk refuses
  // the lines, rank 0 tells the user once for each cause.
  void write(const StepMetrics& metrics, const std::string& order);
  void write(const ValidationMetrics& metrics);
  void flush();              // throws IoError
  void flush_what_can_be();  // only warns of an error, because the caller is about to throw a different error

 private:
  void tell_trouble();

  Console& console_;
  std::optional<MetricsWriter> metrics_;
  std::optional<LineFile> order_;
  std::string told_trouble_;
};

}  // namespace reigen::train
