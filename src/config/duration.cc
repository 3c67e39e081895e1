#include "reigen/config/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "reigen/base/error.h"

namespace reigen::config {
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

Duration parse_duration(const std::string& option, const std::string& text) {
  double count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error == std::errc() && std::isfinite(count) && count > 0) {
    for (const Word& word : kWords) {
      if (word.text != unit) continue;
      if (word.unit == Duration::Unit::kSteps && (std::floor(count) != count || count > 1e15)) break;
      return {.count = count * word.factor, .unit = word.unit};
    }
  }
  throw InvalidArgument(Report{.what = fmt::format("{} is no number of steps, epochs or time", option),
                               .got = fmt::format("'{}'", text),
                               .expected = "a number above 0 with a unit: 500, 0.25 epochs, 90 s, 30 min, 2 h"});
}

}  // namespace reigen::config
