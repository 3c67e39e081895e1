// How often something happens in a training, or how long it lasts: in steps, in epochs or in time.
// Thread rule: a Duration is a value; the functions may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reigen {

struct Duration {
  enum class Unit { kSteps, kEpochs, kSeconds };
  double count = 0;  // above 0; a whole number of steps
  Unit unit = Unit::kSteps;
  bool operator==(const Duration&) const = default;
};

// "500" and "500 steps"; "2 epochs", "0.25 epochs"; "90 s", "30 min", "1.5 h". Not set for any other text.
std::optional<Duration> read_duration(std::string_view text);

// "500", "2 epochs", "90 s". read_duration() reads this text as an equal value.
std::string to_text(const Duration& duration);

// The number of steps, rounded, where an epoch has so many. Throws InternalError for a duration in time.
std::int64_t steps_of(const Duration& duration, std::int64_t steps_of_epoch);

}  // namespace reigen
