// The initial values of LibTorch's own modules: each by the distributions of its reset_parameters().
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// Sets what `module` holds by its type, its children's included where its rule is theirs too (an attention's output, a
// Transformer): called after theirs. `prefix`: of its parameters' names in the whole model, "" or "blocks.0.". False,
// and nothing is set, when the type has no rule of its own.
bool initialize_by_type(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed);

}  // namespace reigen::nn
