#include "base/log.h"

#include <unistd.h>

#include "base/environment.h"

namespace reigen::base {

namespace {

LogLevel level_from_environment() {
  const std::string name = environment::log().value_or("warning");
  if (name == "error") return LogLevel::kError;
  if (name == "info") return LogLevel::kInfo;
  if (name == "debug") return LogLevel::kDebug;
  return LogLevel::kWarning;
}

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "";
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const LogLevel shown = level_from_environment();
  return level <= shown;
}

void log_line(LogLevel level, const std::string& text) {
  const std::string line = fmt::format("reigen {}: {}\n", name_of(level), text);
  // A log that cannot be written has nowhere to complain.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace reigen::base
