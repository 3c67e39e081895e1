#include "base/log.h"

#include <unistd.h>

#include <optional>

#include "base/environment.h"

namespace reigen::base {

namespace {

constexpr const char* kDefault = "warning";

std::optional<LogLevel> level_named(const std::string& name) {
  if (name == "error") return LogLevel::kError;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "info") return LogLevel::kInfo;
  if (name == "debug") return LogLevel::kDebug;
  return std::nullopt;
}

LogLevel level_from_environment() {
  return level_named(environment::log().value_or(kDefault)).value_or(LogLevel::kWarning);
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

void check_log_variable() {
  const std::string name = environment::log().value_or(kDefault);
  if (level_named(name)) return;
  log_line(
      LogLevel::kWarning,
      fmt::format("REIGEN_LOG={} is no level: taken for {}; it may be error, warning, info or debug", name, kDefault));
}

void log_line(LogLevel level, const std::string& text) {
  const std::string line = fmt::format("reigen {}: {}\n", name_of(level), text);
  // If stderr cannot be written, there is no other place to report that.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace reigen::base
