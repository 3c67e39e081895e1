#include "optim/option_checks.h"

#include <cmath>

#include "base/check.h"

namespace reigen::optim {

void refuse_option(const std::string& optimizer, const std::string& option, double value, const char* expected) {
  throw InvalidArgument(Report{.what = fmt::format("[{}] {} is out of range", optimizer, option),
                               .got = fmt::format("{}", value),
                               .expected = expected,
                               .fix = fmt::format("set {} to such a number", option)});
}

void check_finite(const std::string& optimizer, const std::string& option, double value) {
  if (!std::isfinite(value)) refuse_option(optimizer, option, value, "a finite number");
}

void check_at_least_zero(const std::string& optimizer, const std::string& option, double value) {
  if (!(value >= 0) || std::isinf(value)) refuse_option(optimizer, option, value, "a finite number of at least 0");
}

void check_above_zero(const std::string& optimizer, const std::string& option, double value) {
  if (!(value > 0) || std::isinf(value)) refuse_option(optimizer, option, value, "a finite number above 0");
}

void check_below_one(const std::string& optimizer, const std::string& option, double value) {
  if (!(value >= 0 && value < 1)) refuse_option(optimizer, option, value, "at least 0 and less than 1");
}

void check_eps(const std::string& optimizer, double value) {
  if (!(static_cast<float>(value) > 0) || std::isinf(value)) {
    refuse_option(optimizer, "eps", value, "a finite number that is above 0 in single precision");
  }
}

void check_groups(const std::string& optimizer, const std::vector<ParameterGroup>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = fmt::format("groups[{}].", i);
    check_at_least_zero(optimizer, where + "lr_factor", groups[i].lr_factor);
    if (groups[i].weight_decay) check_at_least_zero(optimizer, where + "weight_decay", *groups[i].weight_decay);
    if (!groups[i].patterns.empty()) continue;
    throw InvalidArgument(Report{.what = fmt::format("[{}] {}patterns is empty", optimizer, where),
                                 .expected = "at least one pattern of parameter names",
                                 .fix = "name the parameters of the group, for example \"head.*\""});
  }
}

}  // namespace reigen::optim
