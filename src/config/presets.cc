#include "reigen/config/presets.h"

#include "base/check.h"
#include "base/text.h"

namespace reigen::config {

std::vector<PresetValue> values_of(const Preset& preset, std::optional<std::int64_t> global_batch) {
  for (const PresetValue& one : preset.values)
    if (!global_batch && one.option == "train.global_batch") global_batch = base::parse<std::int64_t>(one.value);
  std::vector<PresetValue> values = preset.values;
  std::erase_if(values, [&](const PresetValue& one) {
    const bool for_all = one.from_batch == 0 && one.below_batch == std::numeric_limits<std::int64_t>::max();
    REIGEN_ASSERT(for_all || global_batch,
                  "the preset {} has a value of {} for some batches, but no train.global_batch", preset.name,
                  one.option);
    return !for_all && (*global_batch < one.from_batch || *global_batch >= one.below_batch);
  });
  return values;
}

}  // namespace reigen::config
