// What a user sees while training: a bar that redraws itself on a terminal, plain lines otherwise.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace reigen::train {

struct ProgressOptions {
  int columns = 0;              // of the terminal; 0: none, plain lines
  std::int64_t log_every = 50;  // steps between plain lines
  std::int64_t steps = 0;       // of the whole run
  std::int64_t first_step = 0;  // done before this process started
  std::int64_t epochs = 1;
  std::function<void(const std::string&)> write = {};  // gets whole lines, and redraws ending in '\r'
};

// Of stdout, or of the terminal behind the launcher (REIGEN_CONSOLE); 0 when nobody watches.
int terminal_columns();

// Writes to stdout in one call, so that lines of several writers never mix.
void write_to_stdout(const std::string& text);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(ProgressOptions options, Clock::time_point now = Clock::now());

  // After each step. Draws at most ten times a second, and always the last step.
  void step(std::int64_t step, std::int64_t epoch, double loss, double samples_per_s,
            Clock::time_point now = Clock::now());

  // A line of its own: wipes the bar first.
  void line(const std::string& text);

  // Time in which no steps are made (validation) does not count towards the time left.
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
