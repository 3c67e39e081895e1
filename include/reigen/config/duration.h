// Durations of a training (base/duration.h) as values of options.
// Thread rule: any thread may call the functions.
#pragma once

#include <string>

#include "reigen/base/duration.h"

namespace reigen::config {

using reigen::Duration;

// As read_duration(). Throws InvalidArgument that names `option` for any other text.
Duration parse_duration(const std::string& option, const std::string& text);

// The same, but refuses times: a learning rate must not depend on how fast a run is.
Duration parse_steps_or_epochs(const std::string& option, const std::string& text);

}  // namespace reigen::config
