#include "train/model/precision.h"

namespace reigen::train {

std::unique_ptr<nn::Autocast> compute_type(const std::string& precision) {
  if (precision == "bf16") return std::make_unique<nn::Autocast>(c10::ScalarType::BFloat16);
  if (precision == "fp16") return std::make_unique<nn::Autocast>(c10::ScalarType::Half);
  return nullptr;
}

}  // namespace reigen::train
