#include "reigen/base/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace reigen {
namespace {

struct Word {
  std::string_view text;
  Duration::Unit unit;
  double factor = 1;
};

constexpr Word kWords[] = {{"", Duration::Unit::kSteps},          {"step", Duration::Unit::kSteps},
                           {"steps", Duration::Unit::kSteps},     {"epoch", Duration::Unit::kEpochs},
                           {"epochs", Duration::Unit::kEpochs},   {"s", Duration::Unit::kSeconds},
                           {"min", Duration::Unit::kSeconds, 60}, {"h", Duration::Unit::kSeconds, 3600}};

}  // namespace

std::optional<Duration> read_duration(std::string_view text) {
  double count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error != std::errc() || !std::isfinite(count) || count <= 0) return std::nullopt;
  for (const Word& word : kWords) {
    if (word.text != unit) continue;
    if (word.unit == Duration::Unit::kSteps && (std::floor(count) != count || count > 1e15)) break;
    return Duration{.count = count * word.factor, .unit = word.unit};
  }
  return std::nullopt;
}

std::string to_text(const Duration& duration) {
  switch (duration.unit) {
    case Duration::Unit::kSteps: return fmt::format("{}", static_cast<std::int64_t>(duration.count));
    case Duration::Unit::kEpochs: return fmt::format("{} {}", duration.count, duration.count == 1 ? "epoch" : "epochs");
    case Duration::Unit::kSeconds: break;
  }
  return fmt::format("{} s", duration.count);
}

std::int64_t steps_of(const Duration& duration, std::int64_t steps_of_epoch) {
  REIGEN_ASSERT(duration.unit != Duration::Unit::kSeconds, "{} is a time and no number of steps", to_text(duration));
  const bool in_epochs = duration.unit == Duration::Unit::kEpochs;
  return std::llround(duration.count * (in_epochs ? static_cast<double>(steps_of_epoch) : 1.0));
}

}  // namespace reigen
