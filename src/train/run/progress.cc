#include "train/run/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/environment.h"
#include "base/text.h"

namespace reigen::train {

namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr int kColumnsDefault = 80;

}  // namespace

int terminal_columns() {
  if (const auto console = base::environment::console()) {
    const int columns = base::parse<int>(*console).value_or(0);
    return columns > 0 ? columns : kColumnsDefault;
  }
  if (::isatty(STDOUT_FILENO) == 0) return 0;
  struct winsize size = {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kColumnsDefault;
}

void write_to_stdout(const std::string& text) {
  // Writing fails if the reader has gone away. Training goes on all the same.
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(ProgressOptions options, Clock::time_point now)
    : options_(std::move(options)), started_(now), drawn_(now - kRedrawEvery) {}

std::string Progress::time_left(std::int64_t step, Clock::time_point now) const {
  const auto done = step - options_.first_step;
  if (done <= 0) return "?";
  const double each = std::chrono::duration<double>(now - started_).count() / static_cast<double>(done);
  return format_duration(each * static_cast<double>(options_.steps - step));
}

namespace {

// The width of the bar: the room that the text leaves in the line, at most 20; 0 if there is too little room for a
// bar.
std::int64_t width_of_bar(std::size_t columns, std::size_t words) {
  constexpr std::size_t kMost = 20;
  constexpr std::size_t kLeast = 4;
  constexpr std::size_t kBeside = 3;  // brackets and a space next to the bar
  if (columns < words + kBeside + kLeast) return 0;
  return static_cast<std::int64_t>(std::min(kMost, columns - words - kBeside));
}

}  // namespace

void Progress::step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s, Clock::time_point now) {
  const bool last = step == options_.steps;
  const auto text = [&] {
    return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {:.0f} samples/s  {} left", epoch + 1, options_.epochs,
                       step, options_.steps, loss, samples_per_s, time_left(step, now));
  };
  if (options_.columns == 0) {
    if (step % options_.log_every == 0 || last || step == options_.first_step + 1) options_.write(text() + '\n');
    return;
  }
  if (!last && now - drawn_ < kRedrawEvery) return;
  drawn_ = now;
  // One column is left free, so that no terminal wraps the line. Padding wipes a longer line that was drawn before.
  const auto columns = static_cast<std::size_t>(std::max(1, options_.columns - 1));
  std::string bar = text();
  if (const std::int64_t width = width_of_bar(columns, bar.size()); width > 0) {
    const auto filled = options_.steps > 0 ? width * std::min(step, options_.steps) / options_.steps : width;
    bar = "[" + std::string(static_cast<std::size_t>(filled), '=') +
          std::string(static_cast<std::size_t>(width - filled), ' ') + "] " + bar;
  }
  bar.resize(columns, ' ');
  options_.write(bar + '\r');
  bar_shown_ = true;
}

void Progress::line(const std::string& text) {
  if (bar_shown_) options_.write(std::string(static_cast<std::size_t>(std::max(1, options_.columns - 1)), ' ') + '\r');
  bar_shown_ = false;
  options_.write(text + '\n');
}

}  // namespace reigen::train
