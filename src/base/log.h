// Log lines on stderr: "reigen warning: text". Each line is one write, so that lines of several ranks never mix.
// REIGEN_LOG=error|warning|info|debug sets the least severe level that is shown (default: warning).
// Thread rule: any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace reigen::base {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

bool log_enabled(LogLevel level);
// Warns if the value of REIGEN_LOG is no level. Only one process of a job calls this function: Reigen's launcher, or
// rank 0 if another launcher started the job.
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
