// Initial values that depend only on a parameter's name, the seed and the element's index. They are the same for every
// layout, machine and number of threads. They do not depend on other parts of the module, or on the order in which it
// was built.
// Thread rule: no shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// tensor[i] = -bound + 2·bound·u(name, seed, first + i), where u is uniform in [0, 1). Elements are numbered in
// row-major order; values are computed in double and rounded to the tensor's type. If the tensor is a part of a
// parameter, `first` is the global index of its first element. Throws InvalidArgument unless the tensor is a contiguous
// fp32 or fp64 tensor on the CPU.
void fill_uniform(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double bound,
                  std::int64_t first = 0);

// As fill_uniform(), but normal with mean 0 and standard deviation `deviation`: tensor[i] = deviation · q(u + 2^-33),
// where q is the inverse of the normal distribution function; |tensor[i]| < 6.4 · deviation.
void fill_normal(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double deviation,
                 std::int64_t first = 0);

// Sets LibTorch's default values: every module of torch::nn gets the distributions of its reset_parameters().
// - Convolutions and linear layers: uniform in ±1/sqrt(fan_in), fan_in = elements of the weight per output.
// - Normalisations: weight 1, bias 0. RNN, LSTM, GRU and their cells: uniform in ±1/sqrt(hidden).
// - Embeddings: normal, but the row of the padding index is 0. MultiheadAttention and Transformer: after Glorot and
// Bengio. Embeddings that were created from given weights keep these weights. In a module of your own, a parameter
// called weight and the bias next to it are treated as a linear layer's, or as a normalisation's if the weight has one
// dimension. Throws InvalidArgument naming any other parameter of a module of your own.
void initialize(torch::nn::Module& module, std::uint64_t seed);

}  // namespace reigen::nn
