#include "reigen/config/presets.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace reigen::config {

std::vector<PresetValue> values_of(const Preset& preset, std::optional<std::int64_t> global_batch) {
  if (!global_batch) {
    const auto own = std::find_if(preset.values.begin(), preset.values.end(),
                                  [](const PresetValue& one) { return one.option == "train.global_batch"; });
    if (own != preset.values.end()) global_batch = base::parse<std::int64_t>(own->value);
  }
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  std::vector<PresetValue> values;
  for (const PresetValue& one : preset.values) {
    const bool for_all = one.from_batch == 0 && one.below_batch == kAny;
    REIGEN_ASSERT(for_all || global_batch,
                  "the preset {} has a value of {} for some batches, but no train.global_batch", preset.name,
                  one.option);
    if (for_all || (*global_batch >= one.from_batch && *global_batch < one.below_batch)) values.push_back(one);
  }
  return values;
}

}  // namespace reigen::config
