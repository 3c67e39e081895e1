#include "runtime/group_options.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/variables.h"
#include "reigen/base/error.h"

namespace reigen {

namespace {

// Sets the row's option from the environment variable, if the variable is set.
void read_variable(const Field& row, const std::string& variable) {
  const std::optional<std::string> text = base::get_environment(variable.c_str());
  const std::string usual = row.text();
  if (!text || row.set(*text)) return;
  const bool is_time = std::holds_alternative<std::chrono::milliseconds*>(row.value);
  throw InvalidArgument(Report{.what = fmt::format("{} is not {}", variable, is_time ? "a time" : row.expected()),
                               .got = "'" + *text + "'",
                               .expected = is_time ? "seconds, more than 0" : row.expected(),
                               .fix = fmt::format("export {}={}", variable, usual.empty() ? "auto" : usual)});
}

std::string variable_of(const Field& row) {
  std::string name = "REIGEN_COMM_" + row.key;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

// An option that the program gives wins over the environment.
template <class Value>
void take(Value& option, const Value& said) {
  if (said != Value()) option = said;
}

}  // namespace

comm::GroupOptions group_options(const InitOptions& options) {
  comm::GroupOptions group;
  Fields rows;
  describe(rows, group);
  for (const Field& row : rows.rows) {
    if (row.key == "timeout") read_variable(row, "REIGEN_TIMEOUT");
    read_variable(row, variable_of(row));
  }
  group.name = options.name;
  group.device = options.device;
  take(group.device_backend, options.device_backend);
  take(group.backend, options.backend);
  take(group.network, options.network);
  take(group.algorithms, options.algorithms);
  take(group.machine_id, options.machine_id);
  take(group.segments, options.segments);
  take(group.connections, options.connections);
  take(group.join_timeout, options.join_timeout);
  take(group.heartbeat_timeout, options.heartbeat_timeout);
  take(group.report_after, options.report_after);
  take(group.timeout, options.timeout);
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
