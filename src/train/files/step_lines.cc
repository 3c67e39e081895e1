#include "train/files/step_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reigen/base/error.h"

namespace reigen::train {

// The order of the samples is a function of seed, epoch and position, so the order of earlier steps can be written
// again.
void StepLines::open_order(const std::filesystem::path& path, const data::SamplerOptions& drawn_by, std::int64_t done) {
  order_.emplace(path);
  const data::Sampler sampler(drawn_by);
  for (std::int64_t epoch = 0, written = 0; written < done; ++epoch) {
    const data::Order indices = sampler.order(epoch);
    for (std::int64_t step = 0; step < sampler.steps() && written < done; ++step, ++written) {
      const data::Range range = sampler.positions(0, step);
      std::string line;
      for (std::int64_t at = range.begin; at < range.end; ++at) {
        line += fmt::format("{}{}", line.empty() ? "" : " ", indices[at]);
      }
      order_->append(line + '\n');
    }
  }
}

void StepLines::open_metrics(const std::filesystem::path& path, std::int64_t done) { metrics_.emplace(path, done); }

void StepLines::close() {
  metrics_.reset();
  order_.reset();
}

void StepLines::write(const StepMetrics& metrics, const std::string& order) {
  if (!metrics_) return;
  metrics_->write(metrics);
  if (order_) order_->append(order);
  tell_trouble();
}

void StepLines::write(const ValidationMetrics& metrics) {
  if (!metrics_) return;
  metrics_->write(metrics);
  tell_trouble();
}

void StepLines::flush() {
  if (metrics_) metrics_->flush();
  if (order_) order_->flush();
}

void StepLines::flush_what_can_be() {
  try {
    if (metrics_) metrics_->flush();
  } catch (const IoError&) {
    tell_trouble();
  }
}

void StepLines::tell_trouble() {
  const std::string& trouble = metrics_->trouble();
  if (trouble == told_trouble_) return;
  told_trouble_ = trouble;
  if (!trouble.empty()) {
    console_.say(fmt::format("warning: {}; the lines are kept in memory and tried again", trouble));
  }
}

}  // namespace reigen::train
