#include "train/activations.h"

#include <fmt/format.h>

#include "reigen/base/error.h"
#include "train/agree.h"

namespace reigen::train {

std::unique_ptr<nn::ActivationCheckpoint> checkpoint_activations(Task& task, std::int64_t every) {
  if (every == 0) return nullptr;
  const std::vector<nn::Unit> units = task.units();
  if (units.empty()) {
    throw CommonError(ExitCode::kConfiguration,
                      Report{.what = fmt::format("train.activation_checkpoint = {}: the model of {} has no units",
                                                 every, task.name()),
                             .fix = "leave train.activation_checkpoint out"});
  }
  return std::make_unique<nn::ActivationCheckpoint>(
      nn::activation_checkpoint(units, {.every = static_cast<int>(every)}));
}

}  // namespace reigen::train
