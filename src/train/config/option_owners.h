// Options that only some choices have: momentum is sgd's and not adam's.
#pragma once

#include <string>
#include <vector>

#include "reigen/train/config.h"

namespace reigen::train {

struct OptionOwners {
  const char* key;
  std::vector<std::string> names;
};

// "for sgd, lars: ", in front of an option's meaning; empty for one that all have.
std::string owners_text(const std::vector<OptionOwners>& all, const std::string& key);

// For a field that is set: throws InvalidArgument (78) unless `chosen` has it, or all have. `choice`: the option that
// chooses, "optim.name".
void require_owner(const std::vector<OptionOwners>& all, const Field& field, const std::string& choice,
                   const std::string& chosen);

}  // namespace reigen::train
