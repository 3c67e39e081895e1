// The initial values of LibTorch's own modules, each by the distributions of its reset_parameters().
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// Sets the values of `module` by its type, and its children's where its rule covers them (an attention's output, a
// Transformer); so it is called after the children are set. `prefix`: the prefix of its parameters' names in the whole
// model, "" or "blocks.0.". Returns false, and sets nothing, when the type has no rule of its own.
bool initialize_by_type(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed);

}  // namespace reigen::nn
