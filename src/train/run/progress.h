// Shows the progress of training: a bar that redraws itself on a terminal, or plain lines.
// Thread rule: used by one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace reigen::train {

struct ProgressOptions {
  int columns = 0;              // width of the terminal; 0 means no terminal, so plain lines
  std::int64_t log_every = 50;  // steps between plain lines
  std::int64_t steps = 0;       // steps of the whole run
  std::int64_t first_step = 0;  // steps done before this process started
  std::int64_t epochs = 1;
  std::function<void(const std::string&)> write = {};  // receives whole lines, and redraws that end in '\r'
};

// The width of the terminal of stdout, or of the terminal of the launcher that shows this output (REIGEN_CONSOLE); 0
// if there is no terminal.
int terminal_columns();

// Writes to stdout in one call, so that the lines of several writers do not mix.
void write_to_stdout(const std::string& text);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(ProgressOptions options, Clock::time_point now = Clock::now());

  // Call it after each step. Draws at most ten times a second; always draws the last step.
  void step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s,
            Clock::time_point now = Clock::now());

  // Wipes the bar, then writes `text` as a line of its own.
  void line(const std::string& text);

  // Time without steps (validation) does not count when the remaining time is estimated.
  void exclude(Clock::duration duration) { started_ += duration; }

 private:
  std::string time_left(std::int64_t step, Clock::time_point now) const;

  ProgressOptions options_;
  Clock::time_point started_;
  Clock::time_point drawn_;
  bool bar_shown_ = false;
};

// "41 s", "3:07", "2:03:04".
std::string format_duration(double seconds);

}  // namespace reigen::train
