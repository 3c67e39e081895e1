// The initial values of LibTorch's own modules, each by the distributions of its reset_parameters().
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// Sets the values of `module` by its type. If its rule covers values of its children (an attention's output, a
// Transformer), it sets these too, so call it after the children are set. `prefix`: the prefix of its parameters' names
// in the whole model, "" or "blocks.0.". Returns false, and sets nothing, if the type has no rule of its own.
bool initialize_by_type(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed);

}  // namespace reigen::nn
