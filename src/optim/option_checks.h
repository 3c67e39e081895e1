// Checks of options that all optimizers share. A failed check throws InvalidArgument "[<optimizer>] <option> is out of
// range". NaN never passes.
#pragma once

#include <string>
#include <vector>

#include "reigen/optim/parameter_group.h"

namespace reigen::optim {

[[noreturn]] void refuse_option(const std::string& optimizer, const std::string& option, double value,
                                const char* expected);

void check_finite(const std::string& optimizer, const std::string& option, double value);
void check_at_least_zero(const std::string& optimizer, const std::string& option, double value);
void check_above_zero(const std::string& optimizer, const std::string& option, double value);
void check_below_one(const std::string& optimizer, const std::string& option, double value);

// eps must be above 0 in single precision too. Otherwise an element that has never had a gradient would give 0 / 0.
void check_eps(const std::string& optimizer, double value);

void check_groups(const std::string& optimizer, const std::vector<ParameterGroup>& groups);

}  // namespace reigen::optim
