#include "train/model/precision.h"

namespace reigen::train {

std::unique_ptr<nn::Autocast> compute_type(const std::string& precision, const at::Device& device) {
  if (precision == "bf16") return std::make_unique<nn::Autocast>(c10::ScalarType::BFloat16, device.type());
  if (precision == "fp16") return std::make_unique<nn::Autocast>(c10::ScalarType::Half, device.type());
  return nullptr;
}

}  // namespace reigen::train
