#include "train/model/activations.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "train/run/agree.h"

namespace reigen::train {

std::unique_ptr<nn::ActivationCheckpoint> checkpoint_activations(Task& task, const std::string& name,
                                                                 const TrainConfig& config) {
  const std::int64_t every = config.activation_checkpoint;
  const bool keeps_products = config.activation_keep == "products";
  if (every == 0 && keeps_products) {
    throw common(Error(ExitCode::kConfiguration,
                       Report{.what = "train.activation_keep is for units that compute activations again",
                              .got = "train.activation_keep products, train.activation_checkpoint 0",
                              .fix = "set train.activation_checkpoint to 1, or leave train.activation_keep out"}));
  }
  if (every == 0) return nullptr;
  const std::vector<nn::Unit> units = task.units();
  if (units.empty()) {
    throw common(
        Error(ExitCode::kConfiguration,
              Report{.what = fmt::format("train.activation_checkpoint = {}: the model of {} has no units", every, name),
                     .fix = "leave train.activation_checkpoint out"}));
  }
  return std::make_unique<nn::ActivationCheckpoint>(nn::activation_checkpoint(
      units, {.every = static_cast<int>(every), .keep = keeps_products ? nn::products() : std::vector<std::string>()}));
}

}  // namespace reigen::train
