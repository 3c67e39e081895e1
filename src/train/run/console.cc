#include "train/run/console.h"

#include <utility>

namespace reigen::train {

void Console::say(const std::string& text) {
  if (!speaks_) return;
  if (progress_)
    progress_->line(text);
  else
    write_(text + '\n');
}

void Console::begin_progress(ProgressOptions options) {
  if (!speaks_) return;
  options.columns = columns_;
  options.write = write_;
  progress_.emplace(std::move(options));
}

void Console::show_step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s) {
  if (progress_) progress_->step(step, epoch, loss, samples_per_s);
}

void Console::exclude(Progress::Clock::duration duration) {
  if (progress_) progress_->exclude(duration);
}

}  // namespace reigen::train
