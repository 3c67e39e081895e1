#include "train/tasks/kernels_option.h"

#include <fmt/format.h>

namespace reigen::train {

ModelOption kernels_option(const std::string& operations) {
  return {
      .key = "kernels",
      .value = std::string("auto"),
      .meaning = fmt::format("fused: Reigen's operations for {}; torch: LibTorch's; auto: fused on a GPU", operations),
      .choices = {"auto", "fused", "torch"}};
}

nn::Kernels kernels_of(const Config& config) {
  const std::string& name = config.model.text("kernels");
  if (name == "fused") return nn::Kernels::kFused;
  return name == "torch" ? nn::Kernels::kTorch : nn::Kernels::kAuto;
}

}  // namespace reigen::train
