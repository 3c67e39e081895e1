// The speeds of the kernels for the layers of models, for check_model.
// Thread rule: a check has one thread.
#pragma once

namespace reigen::nn::kernels::checks {

// Measures each kernel at sizes of GPT-2 and Llama and, for comparison, a copy within the device, and prints a table.
// With `small` the sizes are small, and the speeds mean nothing. Throws std::runtime_error if CUDA reports an error.
void measure(bool small);

}  // namespace reigen::nn::kernels::checks
