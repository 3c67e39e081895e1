// What a run writes down step by step: metrics.jsonl, and which samples each step drew (data.dump_order). Rank 0 has
// the files; on the others nothing is open and nothing happens.
// Thread rule: one thread.
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

  // Opens the file of samples and writes again what the steps until `done` drew. Throws IoError.
  void open_order(const std::filesystem::path& path, const data::SamplerOptions& drawn_by, std::int64_t done);
  // Opens metrics.jsonl and keeps the lines of the steps until `done`. Throws as MetricsWriter.
  void open_metrics(const std::filesystem::path& path, std::int64_t done);
  void close();
  bool writes_order() const { return order_.has_value(); }

  // order: the samples of this step; dropped if data.dump_order is not set. Trouble with the disk is told once for each
  // cause.
  void write(const StepMetrics& metrics, const std::string& order);
  void write(const ValidationMetrics& metrics);
  void flush();              // throws IoError
  void flush_what_can_be();  // keeps its own errors: the caller is about to throw another one

 private:
  void tell_trouble();

  Console& console_;
  std::optional<MetricsWriter> metrics_;
  std::optional<LineFile> order_;
  std::string told_trouble_;
};

}  // namespace reigen::train
