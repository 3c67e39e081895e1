#include "reigen/train/metrics_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reigen/base/error.h"
#include "train/files/appended_file.h"

namespace reigen::train {

namespace {

struct Line {
  std::int64_t step = 0;    // 0 means that the line has no step
  bool is_of_step = false;  // false for the line of a validation or an epoch
};

Line line_in(std::string_view text) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return {};
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer()) return {};
  return {.step = step->get<std::int64_t>(), .is_of_step = json.contains("lr")};
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

// The text begins with a comma, because the time is never the first key of a line.
std::string of_time(double time) { return time > 0 ? fmt::format(",\"time\":{:.3f}", time) : ""; }

// Opens the file and keeps its lines up to step `last`. The steps must follow each other without a gap. If a run began
// in this directory with a checkpoint of another directory, the file has no lines of the steps before that checkpoint.
// Such a run may go back to the step at which it began in this directory.
std::unique_ptr<AppendedFile> open_at(const std::filesystem::path& path, std::int64_t last) {
  if (last == 0) return std::make_unique<AppendedFile>(path);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  // If a run is resumed in a new directory, there are no lines of earlier steps.
  if (error || size == 0) return std::make_unique<AppendedFile>(path);
  std::int64_t step = 0;
  bool begins_behind = false;
  {
    std::ifstream in(path);
    for (std::string text; step < last && std::getline(in, text);) {
      const Line line = line_in(text);
      const bool fits = line.is_of_step ? step == 0 || line.step == step + 1 : line.step == step || step == 0;
      if (line.step <= 0 || !fits) break;
      begins_behind = begins_behind || (line.is_of_step && step == 0 && line.step == last + 1);
      if (line.is_of_step) step = line.step;
    }
  }
  if (step != last && !begins_behind) {
    throw DataError(Report{.what = fmt::format("{} does not hold the steps before the checkpoint", path.string()),
                           .got = step == 0 ? "no line of a step" : fmt::format("lines up to step {}", step),
                           .expected = fmt::format("the line of step {}", last),
                           .fix = "move the file away, or go on in another --run.dir"});
  }
  return std::make_unique<AppendedFile>(path, first_lines([last](std::string_view line) {
                                          const std::int64_t of_line = line_in(line).step;
                                          return of_line > 0 && of_line <= last;
                                        }));
}

// The text begins with a comma.
std::string of_values(const NamedValues& values) {
  std::string text;
  for (const auto& [key, value] : values) text += fmt::format(",{}:{}", nlohmann::json(key).dump(), json_number(value));
  return text;
}

}  // namespace

std::string to_json_line(const StepMetrics& m) {
  std::string line = fmt::format(
      "{{\"step\":{},\"epoch\":{},\"loss\":{},\"lr\":{},\"samples_per_s\":{:.1f},\"step_ms\":{:.4f},\"data_ms\":{:.4f},"
      "\"forward_ms\":{:.4f},\"backward_ms\":{:.4f},\"comm_exposed_ms\":{:.4f},\"optimizer_ms\":{:.4f}",
      m.step, m.epoch, json_number(m.loss), m.lr, m.samples_per_s, m.step_ms, m.data_ms, m.forward_ms, m.backward_ms,
      m.comm_exposed_ms, m.optimizer_ms);
  line += of_time(m.time);
  if (m.grad_norm) line += fmt::format(",\"grad_norm\":{}", *m.grad_norm);
  if (m.skipped) line += ",\"skipped\":true";
  line += of_values(m.logged);
  return line + "}\n";
}

std::string to_json_line(const ValidationMetrics& m) {
  std::string line =
      fmt::format("{{\"step\":{},\"epoch\":{}{},\"test_samples\":{}", m.step, m.epoch, of_values(m.figures), m.samples);
  line += of_time(m.time);
  if (m.at_end) line += ",\"at_end\":true";
  return line + "}\n";
}

std::string to_json_line(const EpochMetrics& m) {
  std::string figures = of_values(m.figures);
  if (!figures.empty()) figures.erase(0, 1);
  return fmt::format("{{\"step\":{},\"epoch\":{},\"epoch_means\":{{{}}}{}}}\n", m.step, m.epoch, figures,
                     of_time(m.time));
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) * 1e-3;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps)
    : file_(open_at(path, keep_steps)) {}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const StepMetrics& metrics) { file_->append(to_json_line(metrics)); }

void MetricsWriter::write(const ValidationMetrics& metrics) { file_->append(to_json_line(metrics)); }

void MetricsWriter::write(const EpochMetrics& metrics) { file_->append(to_json_line(metrics)); }

const std::string& MetricsWriter::trouble() const { return file_->trouble(); }

void MetricsWriter::flush() { file_->flush(); }

}  // namespace reigen::train
