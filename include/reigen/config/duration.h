// How often something happens in a training, or how long it lasts: in steps, in epochs or in time.
// Thread rule: a Duration is a value; the function may be called from any thread.
#pragma once

#include <string>

namespace reigen::config {

struct Duration {
  enum class Unit { kSteps, kEpochs, kSeconds };
  double count = 0;  // above 0; a whole number of steps
  Unit unit = Unit::kSteps;
  bool operator==(const Duration&) const = default;
};

// "500" and "500 steps"; "2 epochs", "0.25 epochs"; "90 s", "30 min", "1.5 h". Throws InvalidArgument that names
// `option` for any other text.
Duration parse_duration(const std::string& option, const std::string& text);

}  // namespace reigen::config
