#include "reigen/config/duration.h"

#include <fmt/format.h>

#include "reigen/base/error.h"

namespace reigen::config {

Duration parse_duration(const std::string& option, const std::string& text) {
  if (const auto duration = read_duration(text)) return *duration;
  throw InvalidArgument(Report{.what = fmt::format("{} is no number of steps, epochs or time", option),
                               .got = fmt::format("'{}'", text),
                               .expected = "a number above 0 with a unit: 500, 0.25 epochs, 90 s, 30 min, 2 h"});
}

Duration parse_steps_or_epochs(const std::string& option, const std::string& text) {
  const auto duration = read_duration(text);
  if (duration && duration->unit != Duration::Unit::kSeconds) return *duration;
  throw InvalidArgument(Report{.what = fmt::format("{} is no number of steps or epochs", option),
                               .got = fmt::format("'{}'", text),
                               .expected = "a number above 0 with a unit: 500, 5 epochs, 0.25 epochs"});
}

}  // namespace reigen::config
