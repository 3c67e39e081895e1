// The state of the default generator of the CPU, 5 KB.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::nn {

at::Tensor random_state();
void set_random_state(const at::Tensor& state);

}  // namespace reigen::nn
