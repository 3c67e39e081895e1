#include "reigen/train/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reigen/base/error.h"
#include "train/line_file.h"

namespace reigen::train {

namespace {

// Of the step that the line tells of; 0: it tells of none.
std::int64_t step_of(std::string_view line) {
  const auto json = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
  if (!json.is_object()) return 0;
  const auto found = json.find("step");
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// Keeps the lines up to `last`, each of the step after the one before.
std::unique_ptr<LineFile> open_at(const std::filesystem::path& path, std::int64_t last) {
  if (last == 0) return std::make_unique<LineFile>(path);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  // A run that went on in a new directory has no line of the steps before.
  if (error || size == 0) return std::make_unique<LineFile>(path);
  std::int64_t step = 0;
  {
    std::ifstream in(path);
    for (std::string line; step < last && std::getline(in, line);) {
      const std::int64_t next = step_of(line);
      if (next <= 0 || (step > 0 && next != step + 1)) break;
      step = next;
    }
  }
  if (step != last) {
    throw DataError(Report{.what = fmt::format("{} does not hold the steps before the checkpoint", path.string()),
                           .got = step == 0 ? "no line of a step" : fmt::format("lines up to step {}", step),
                           .expected = fmt::format("the line of step {}", last),
                           .fix = "move the file away, or go on in another --run.dir"});
  }
  return std::make_unique<LineFile>(path, [last](std::string_view line) {
    const std::int64_t of_line = step_of(line);
    return of_line > 0 && of_line <= last;
  });
}

}  // namespace

std::string to_json_line(const StepMetrics& m) {
  std::string line = fmt::format(
      "{{\"step\":{},\"epoch\":{},\"loss\":{},\"lr\":{},\"samples_per_s\":{:.1f},\"step_ms\":{:.4f},\"data_ms\":{:.4f},"
      "\"forward_ms\":{:.4f},\"backward_ms\":{:.4f},\"comm_exposed_ms\":{:.4f},\"optimizer_ms\":{:.4f}",
      m.step, m.epoch, std::isfinite(m.loss) ? fmt::format("{}", m.loss) : "null", m.lr, m.samples_per_s, m.step_ms,
      m.data_ms, m.forward_ms, m.backward_ms, m.comm_exposed_ms, m.optimizer_ms);
  if (m.grad_norm) line += fmt::format(",\"grad_norm\":{}", *m.grad_norm);
  if (m.skipped) line += ",\"skipped\":true";
  return line + "}\n";
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps)
    : file_(open_at(path, keep_steps)) {}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const StepMetrics& metrics) { file_->append(to_json_line(metrics)); }

void MetricsWriter::flush() { file_->flush(); }

}  // namespace reigen::train
