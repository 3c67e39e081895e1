// Log lines on stderr: "reigen [rank 1] warning: text", each in one write so that lines of several ranks never mix.
// REIGEN_LOG=error|warning|info|debug picks what is shown (default: warning). Safe from any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace reigen::base {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

bool log_enabled(LogLevel level);
// Says it when REIGEN_LOG is none of its values. For the process that speaks for a job: its launcher, or rank 0.
void check_log_variable();
void log_line(LogLevel level, const std::string& text);

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kWarning)) log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kInfo)) log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug)) log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace reigen::base
