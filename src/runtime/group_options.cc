#include "runtime/group_options.h"

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/variables.h"
#include "reigen/base/error.h"

namespace reigen {

namespace {

// Sets the option that `row` describes from the environment variable, if the variable is set.
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

bool is_said(std::chrono::milliseconds time) { return time.count() > 0; }
bool is_said(int number) { return number != 0; }
bool is_said(const std::string& text) { return !text.empty(); }

}  // namespace

comm::GroupOptions group_options(const InitOptions& options) {
  comm::GroupOptions group;
  group.name = options.name;
  group.device = options.device;
  if (is_said(options.device_backend)) group.device_backend = options.device_backend;
  // An option that the program gives overrides the environment: the option's variable is then not read.
  std::set<std::string> said;
  const auto take = [&](const char* key, auto& option, const auto& given) {
    if (!is_said(given)) return;
    option = given;
    said.insert(key);
  };
  take("backend", group.backend, options.backend);
  take("network", group.network, options.network);
  take("algorithms", group.algorithms, options.algorithms);
  take("machine_id", group.machine_id, options.machine_id);
  take("segments", group.segments, options.segments);
  take("connections", group.connections, options.connections);
  take("join_timeout", group.join_timeout, options.join_timeout);
  take("heartbeat_timeout", group.heartbeat_timeout, options.heartbeat_timeout);
  take("report_after", group.report_after, options.report_after);
  take("timeout", group.timeout, options.timeout);
  Fields rows("comm");
  describe(rows, group);
  for (const Field& row : rows.rows) {
    if (said.contains(row.key)) continue;
    const std::string variable = base::variable_of(row);
    const bool by_short_name = row.key == "timeout" && !base::get_environment(variable.c_str());
    read_variable(row, by_short_name ? "REIGEN_TIMEOUT" : variable);
  }
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
