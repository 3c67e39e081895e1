// The files that a run extends in each step: metrics.jsonl, the samples that each step drew (data.dump_order), and what
// TensorBoard shows (log.tensorboard). A run does not end because the last one cannot be written.
// Only rank 0 has the files; on the other ranks no file is open and calls do nothing.
// Thread rule: used by one thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "reigen/base/error.h"
#include "reigen/data/sampler.h"
#include "reigen/train/config.h"
#include "reigen/train/metrics_writer.h"
#include "reigen/train/summary_writer.h"
#include "train/files/appended_file.h"
#include "train/files/csv_file.h"
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
  // Opens the run's file for TensorBoard in `directory` and keeps what it has of the steps up to `done`. A new file
  // begins with the options of `config`. If that is not possible, rank 0 tells the user, and there is no such file.
  void open_board(const std::filesystem::path& directory, const Config& config, std::int64_t done);
  // Opens the table of log.csv and keeps its rows up to step `done`. If that is not possible, rank 0 tells the user.
  void open_csv(const std::filesystem::path& path, std::int64_t done);
  // The file for TensorBoard that this start has made; empty if there is none.
  std::filesystem::path new_board() const {
    return board_ && board_->is_new() ? board_->path() : std::filesystem::path();
  }
  // Writes more for TensorBoard, if there is its file. An error is told, and ends the file.
  void write_board(const std::function<void(SummaryWriter& board)>& body);
  // Notes for TensorBoard that the run has succeeded.
  void note_success(std::int64_t step);
  void close();
  bool writes_order() const { return order_.has_value(); }

  // `order` is the line with the samples of this step. It is ignored if data.dump_order is not set. If the disk refuses
  // the lines, rank 0 tells the user once for each cause.
  void write(const StepMetrics& metrics, const std::string& order);
  void write(const ValidationMetrics& metrics);
  void write(const EpochMetrics& metrics);
  void flush();              // throws IoError
  void flush_what_can_be();  // only warns of an error

 private:
  void flush_others();
  void tell_trouble();
  void flush_board();
  void drop_board(const Error& error);
  void drop_csv(const Error& error);
  template <class Metrics>
  void write_all(const Metrics& metrics);

  Console& console_;
  std::optional<MetricsWriter> metrics_;
  std::optional<AppendedFile> order_;
  std::optional<CsvFile> csv_;
  std::unique_ptr<SummaryWriter> board_;
  std::string told_trouble_;
};

}  // namespace reigen::train
