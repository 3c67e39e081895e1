// Sets the initial values of LibTorch's own modules, with the distributions of their reset_parameters().
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// Sets the values of `module` by the rule for its type. The rules for MultiheadAttention and Transformer also set
// values of the module's children, so call this function after the children are set. `prefix` is the prefix of the
// module's parameter names in the whole model: "blocks.0.", or "" for the model itself. Returns false, and sets
// nothing, if there is no rule for the type.
bool initialize_by_type(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed);

}  // namespace reigen::nn
