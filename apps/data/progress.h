// Shows on the terminal how far a command has come.
// Thread rule: one thread at a time.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace reigen::apps::data {

// A line on the terminal that changes, at most four times a second.
class Progress {
 public:
  void show(std::int64_t done, std::int64_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || (done < all && now - shown_ < std::chrono::milliseconds(250))) return;
    shown_ = now;
    fmt::print(stderr, "\r\033[K{} of {} samples{}", done, all, done == all ? "\r\033[K" : "");
    std::fflush(stderr);
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace reigen::apps::data
