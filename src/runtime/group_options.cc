#include "runtime/group_options.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/variables.h"
#include "reigen/base/error.h"

namespace reigen {

namespace {

using std::chrono::milliseconds;
namespace variables = base::environment;

// `usual` where neither the option nor the variable says it.
milliseconds time_of(milliseconds option, const char* variable, const std::optional<std::string>& text,
                     milliseconds usual) {
  if (option.count() > 0) return option;
  if (!text) return usual;
  const double value = base::parse<double>(*text).value_or(0);
  const auto time = milliseconds(value > 0 && value <= 1e9 ? std::llround(value * 1000) : 0);
  if (time.count() == 0) {
    throw InvalidArgument(Report{.what = fmt::format("{} is not a time", variable),
                                 .got = "'" + *text + "'",
                                 .expected = "seconds, more than 0",
                                 .fix = fmt::format("export {}={}", variable, usual.count() / 1000)});
  }
  return time;
}

std::string text_of(const std::string& option, const std::optional<std::string>& variable, const char* usual) {
  return option.empty() ? variable.value_or(usual) : option;
}

}  // namespace

comm::GroupOptions group_options(const InitOptions& options) {
  comm::GroupOptions group;
  group.name = options.name;
  group.backend = text_of(options.backend, variables::comm_backend(), "auto");
  group.network = text_of(options.network, variables::comm_network(), "tcp");
  group.algorithms = text_of(options.algorithms, variables::comm_algorithms(), "");
  group.machine_id = text_of(options.machine_id, variables::comm_machine_id(), "");
  group.segments = options.segments;
  group.device = options.device;
  if (!options.device_backend.empty()) group.device_backend = options.device_backend;
  group.join_timeout =
      time_of(options.join_timeout, "REIGEN_COMM_JOIN_TIMEOUT", variables::comm_join_timeout(), group.join_timeout);
  group.heartbeat_timeout = time_of(options.heartbeat_timeout, "REIGEN_COMM_HEARTBEAT_TIMEOUT",
                                    variables::comm_heartbeat_timeout(), group.heartbeat_timeout);
  group.report_after =
      time_of(options.report_after, "REIGEN_COMM_REPORT_AFTER", variables::comm_report_after(), group.report_after);
  const auto by_option = variables::comm_timeout();
  group.timeout = time_of(options.timeout, by_option ? "REIGEN_COMM_TIMEOUT" : "REIGEN_TIMEOUT",
                          by_option ? by_option : variables::timeout(), group.timeout);
  return group;
}

void warn_of_unknown_variables() {
  for (const base::UnknownVariable& variable : base::unknown_variables()) {
    if (variable.meant.empty()) {
      base::log_warning("nobody reads the environment variable {}; `reigen help environment` lists those that are read",
                        variable.name);
    } else {
      base::log_warning("nobody reads the environment variable {}, did you mean {}?", variable.name, variable.meant);
    }
  }
}

}  // namespace reigen
